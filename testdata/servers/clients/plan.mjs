// What the clients here have in common. Each is run as
//
//	node CLIENT.mjs PLAN
//
// PLAN is a JSON object: url (with headers) or command, args and env say where
// the gateway is; version is a protocol version, "" where the library is to
// choose; call is the params of one tools/call; connections is how often to
// connect and make it. A client prints an array with, for each connection, the
// version that was agreed on, the names of the tools, and the call's result.
export const plan = JSON.parse(process.argv[2]);
export const info = { name: "foreign", version: "1" };

export async function run(talk) {
  try {
    const all = [];
    for (let i = 0; i < plan.connections; i++) {
      const { version, tools, result } = await talk();
      all.push({ version, tools: tools.map((t) => t.name), result });
    }
    console.log(JSON.stringify(all));
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}
