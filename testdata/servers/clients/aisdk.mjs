// The AI SDK's client. It sends no key with a call and, told to, sends the call
// again after a status that it takes for passing.
import { createMCPClient } from "@ai-sdk/mcp";
import { StdioMCPTransport } from "@ai-sdk/mcp/mcp-stdio";
import { info, plan, run } from "./plan.mjs";

const { url, headers, command, args, env, version, maxRetries, call } = plan;

run(async () => {
  const client = await createMCPClient({
    transport: url ? { type: "http", url, headers } : new StdioMCPTransport({ command, args, env }),
    clientName: info.name,
    protocolVersionDiscovery: version === "" || version === "2026-07-28",
    maxRetries,
  });
  const { tools } = await client.listTools();
  const result = await client.callTool(call);
  await client.close();
  return { version: client.initializeResult.protocolVersion, tools, result };
});
