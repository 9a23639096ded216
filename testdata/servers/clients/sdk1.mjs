// The TypeScript SDK's first line, which speaks the protocol's first era. Its
// request passes members of params on that it does not know.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { info, plan, run } from "./plan.mjs";

const { url, headers, command, args, env, call } = plan;

run(async () => {
  const client = new Client(info);
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
    : new StdioClientTransport({ command, args, env });
  let version;
  transport.setProtocolVersion = ((set) => (v) => {
    version = v;
    set?.call(transport, v);
  })(transport.setProtocolVersion);
  await client.connect(transport);
  const { tools } = await client.listTools();
  const result = await client.request({ method: "tools/call", params: call }, CallToolResultSchema);
  await client.close();
  return { version, tools, result };
});
