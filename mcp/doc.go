// Package mcp is a gateway for the Model Context Protocol: it stands between a
// client and an unmodified server, both over stdio, and lets the calls of tools
// with side effects go through a guard.
//
// # What is forwarded and what is decoded
//
// Messages are forwarded by their envelope. Of each line only the top level is
// read: where id, method, params, result and error are. The line goes on as it
// came, with another id in its place; so definitions and results keep every
// member, every number's digits and every byte of white space, and a message
// costs no more than a scan. The ids are the gateway's own towards the server,
// and towards the client for what the server asks, since both sides may start
// anew and use theirs again. The ids that the two sides see are always their
// own, byte for byte.
//
// Decoded is only what a decision needs:
//
//   - of a tools/call its name, and unless the tool only reads, the names and
//     values at the top of params and of _meta (identity, protocol era). The
//     arguments are handed to the guard as raw bytes;
//   - of notifications/cancelled the request's id;
//   - of the answer to a guarded call what the policy's judge looks at, and
//     whether it is interim (resultType input_required);
//   - of tools/list, asked for by ourselves, names, readOnlyHint where hints are
//     believed, and whether the schema takes the argument that carries the key.
//
// Into a guarded call goes the key, where the policy wants it; into its answer
// go our members of _meta. A protocol error carries them in error.data._meta;
// data that is no object moves to data.value. Every other byte is the sender's.
//
// A line that is no JSON is answered with -32700, a batch and a line of more than
// 256 MiB with -32600, all under id null. What is wrong inside arguments (names twice, bad UTF-8, lone
// surrogates, absurd nesting) does not break the envelope: the guard refuses
// such a call under its own id. A tools/call without an id is not carried out.
// A guarded tools/call that wants to run as a task is refused.
//
// # Eras
//
// Nothing depends on the protocol's version but this: a client's initialize is
// kept and said again, with notifications/initialized, to every further process
// of the server, whose answer is swallowed; a client that sends requests without
// it speaks the stateless protocol and needs no such thing. A query of ours that
// finds no client waits shortly for one, then asks server/discover and falls
// back to initialize. When a client comes later, that process is ended, so that
// the client's handshake meets a fresh one.
//
// # Several servers
//
// A client has a conversation of its own with every server. With one, everything
// passes as it is. With several, or with Config.Prefix, it sees one server that
// is put together:
//
//	initialize, server/discover  said to all. Answered when all have answered, or
//	                             could not be started, or 5 s have gone by; with
//	                             the lowest version and everybody's capabilities
//	lists                        every page of all, on one. Definitions keep every
//	                             byte but the name: server__name. Without prefix a
//	                             name that two servers have is offered of neither
//	tools/call, prompts/get      by the name; a call of a name that two have is
//	                             refused
//	resources, completion        by what was listed; else asked of one after the
//	                             other, until one does not say that it knows nothing
//	                             of it, and so any other request
//	logging/setLevel,            said to all
//	subscriptions/listen
//	ping                         answered by the gateway
//
// One that is absent is waited for 2 s and left out; it is started again for ever,
// and when it is back the client is told that its lists have changed. The scope
// of an operation is the server's own name and its own name for the tool, however
// clients see it. Server.Allows takes tools out of lists and calls, with one
// server too.
//
// What the client has set in a server (the log's level, subscriptions) is said
// again to its next process.
//
// # Tools of our own
//
// Those of Config.Control are appended to the last page of tools, and calls of
// them are answered here. A tool of a server that the client would see under the
// same name gives way, and the log says so.
//
// # The server's process
//
// It leads a session of its own. It is started at once, and after its end when
// something needs it, 100 ms later and up to 5 s when it keeps dying. One that
// ends before it has answered initialize is started again and initialize said
// again: nothing with an effect was sent. If that happens five times, or the
// command cannot be run, and it is the only server, [Gateway.Serve] returns a
// [StartError].
//
// # How an attempt ends
//
//	the pipe took no byte, or the process that     not sent
//	was prepared for it is gone
//	an answer came                                 by its answer; the policy judges it
//	an answer came that is not UTF-8               ambiguous; ended by its answer
//	an answer began and cannot be read             the asker is told that the outcome is not
//	                                               known; the attempt goes on until one comes
//	                                               that can be read, or the process ends
//	the process ended, or closed its output        ambiguous; ended by its group, which is
//	                                               ended before anybody is told
//	half of the request was written                the process is ended, and so the attempt
//	the process cannot be ended                    ambiguous; the end is not known
//	the cancellation was passed on (cancel:        ambiguous after 10 s without an answer
//	forward)
//
// A client that cancels, stops reading or goes away ends none. When the input
// ends, nothing new is taken and running calls are waited for, at most
// Config.Drain; then the server's standard input is closed and, after a grace of
// 2 s, its group ended. Asks whose attempts end by that are still answered. Each
// of these waits is bounded: [Gateway.Serve] ends whatever client, server and
// kernel do, as long as the end of its input or of its context reaches it.
//
// # What counts as delivered
//
// An answer is marked before it is written, and the mark taken back when the
// write fails, or when the client cancels the request before it has sent anything
// else: it has thrown the answer away. A cancellation confirms no mark.
//
// # Crashes
//
// The package keeps nothing on disk. When the gateway dies, its server loses
// its standard input; what it started may live on, and the guard's recoverer
// finds it by the process group in the record (package internal/proc). The
// client's initialize is lost with its connection.
//
// # Concurrency
//
// One goroutine reads the client and one the server, and each writes what it
// passes on by itself: no message waits for a hand-over. Every guarded call has
// a goroutine of its own, and its answer is written whole. A reader that is held
// up by a full pipe holds up its writer, as it would without a gateway; a pipe
// that is broken does not.
package mcp
