// Package mcp is a gateway for the Model Context Protocol: it stands between
// clients and unmodified servers, over stdio and HTTP, and lets the calls of tools
// with side effects go through a guard.
//
// # Who is who
//
//	Gateway    the servers, the guard, the policy
//	session    one client: over stdio ([Gateway.Serve]), or over HTTP ([Front])
//	sink       how messages reach that client: a pipe, or the streams of requests
//	Upstream   one conversation with one server: its incarnations, one after the
//	           other, their handshakes, and the back-off between them
//	peer       one incarnation: a process, or a session over HTTP, and the requests
//	           that it owes an answer
//	wire       how bytes get there and back
//
// A client with a session has conversations of its own with the servers, so that
// nothing of one client can reach another; requests of clients without one share
// those of their principal. Queries of ours go the way of the client that came
// last, or a way of our own.
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
// # Several servers
//
// With one server everything passes as it is. With several, or a prefix, lists are
// put together from all pages of all servers, definitions unchanged but for the
// name; calls and prompts are routed by name, resources by who has listed them. A
// server that does not answer is left out of what is asked of all, and what has
// changed is made known when it is back.
//
// # Eras
//
// Up to 2025-11-25 a conversation begins with initialize; from 2026-07-28 on every
// request says by itself who asks. Where both sides are of one era nothing is
// changed. A client's initialize is kept and said again, with
// notifications/initialized, to every further incarnation of the server, whose
// answer is swallowed. A stateless client is introduced to the server by
// server/discover, and by initialize where the server does not know that.
//
//	a stateless client, a server that needs     discovery is answered from the server's
//	initialize                                  hello, results are marked as complete; what
//	                                            the server says or asks on its own is not
//	                                            for this client
//	a client that says initialize, a            initialize is answered from server/discover,
//	stateless server                            requests get the client's hello and log
//	                                            level; subscriptions are refused, and so is
//	                                            a result that asks for input
//
// Where requests without a session share a stateless server, one that does not say
// who asks is sent in the gateway's own name. What one era says in _meta of every
// request does not reach a server of the other.
//
// A client that says server/discover and has something to answer a server gets the
// server's own refusal first: it may know initialize as well, with which nothing
// is lost.
//
// A query of ours that finds no client waits shortly for one, then introduces
// itself. When a client comes later, that process is ended, so that the client's
// handshake meets a fresh one.
//
// # Servers over HTTP
//
// Every message is one POST on HTTP/1.1, sent once: net/http gets no way to send a
// body again, which it would do by itself for a request with an idempotency key,
// and redirects are not followed. Whether bytes left is counted on the connection.
//
//	no connection, or nothing was written      not sent
//	404 with a session                         not sent; another session is begun with the
//	                                           client's hello, and what only passed through
//	                                           is sent in that one
//	401, 403, 413, 415                         rejected
//	429                                        throttled, not before Retry-After
//	any other status, a cut or empty answer    ambiguous; the end is when bytes could last
//	                                           have left
//	a stream of events that breaks             resumed where the server gives event ids,
//	                                           else ambiguous
//
// # Clients over HTTP
//
// A response is JSON where the answer is all there is to say, else a stream of
// events. What belongs to a request goes on its stream, the rest on the general one
// or the latest request's; what nobody listens to is kept, up to 256 messages. A
// client that goes away has not got its answer, and ends nothing. A session that
// ends lets its calls run on until they are recorded. Streams are not resumable: who
// asks again gets the stored outcome.
//
// A request of the stateless protocol has to say the same in its headers and in its
// body (protocol version, Mcp-Method, Mcp-Name, and Mcp-Param- for arguments that
// their schema marks with x-mcp-header), or is refused with -32020 before anything
// is sent; its errors have the HTTP status that goes with their code. Whoever leaves
// such a request cancels it. Requests that share a conversation are told apart by
// progress tokens of ours and by the ids of their subscriptions.
//
// # The server's process
//
// A server over stdio leads a session of its own. It is started at once, and after its end when
// something needs it, 100 ms later and up to 5 s when it keeps dying. One that
// ends before it has answered initialize is started again and initialize said
// again: nothing with an effect was sent. If that happens five times, or the
// command cannot be run, and it is the only server, [Gateway.Serve] returns a
// [StartError].
//
// # How an attempt ends
//
// Over stdio:
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
// else: it has thrown the answer away. A cancellation confirms no mark. What is
// heard in the moment of the write counts as heard after it: a quick client's next
// message overtakes the return of the write that it follows.
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
