// The TypeScript SDK's second line, which speaks both eras.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { info, plan, run } from "./plan.mjs";

const { url, headers, command, args, env, version, call } = plan;

run(async () => {
  const mode = version === "" ? "auto" : version === "2026-07-28" ? { pin: version } : "legacy";
  const client = new Client(info, { versionNegotiation: { mode } });
  await client.connect(url
    ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
    : new StdioClientTransport({ command, args, env }));
  const { tools } = await client.listTools();
  const result = await client.callTool(call);
  const agreed = client.getNegotiatedProtocolVersion();
  await client.close();
  return { version: agreed, tools, result };
});
