// Package clientconf reads the configuration files of MCP clients, as far as
// they name servers, and makes of them what the gateway's own file says: the
// map mcpServers of Claude Desktop, Claude Code, Cursor and others, and servers
// of VS Code, each as JSON with comments.
//
// What has no place in the gateway's file is said in a note, and a server that
// the gateway cannot speak to is left to the client. No note, reason or error
// shows a value: those may be secrets.
package clientconf
