// Package policy says what holds for a tool: how its identity is read off the
// arguments, what the end of an attempt says about the effect, when an attempt
// is repeated, and for how long an outcome is kept.
//
// A [Set] is an ordered list of [Tool] entries and implements [idem.Policy].
// The first entry whose pattern matches a tool's full name decides; for a tool
// that none matches, the defaults do.
//
// # What the end of an attempt says
//
// [Tool.Classify] turns [Facts] into an [idem.Outcome] by this table. Whatever
// it does not name is ambiguous: a wrong "ambiguous" costs a question to the
// outside system, a wrong definite class costs a second effect or a lost one.
//
//	observed: nothing of the request left      not_sent
//	any other error of the transport           ambiguous
//	result with content, isError not true      success
//	result with isError: true                  reported; ambiguous where nothing can
//	                                           be asked and the text reads like a
//	                                           failure of a transport
//	result null, or without content            ambiguous: some clients turn a lost
//	                                           answer into null
//	result of type input_required              interim
//	error -32601, -32602                       rejected: refused before the handler ran
//	error -32602 about the tool's output       ambiguous: it comes after the handler
//	any other error                            ambiguous
//
// An entry's rules (CONFIG: classify) go before the table. They never touch an
// attempt of which nothing left, and an interim answer.
//
// # jq
//
// Expressions are jq as gojq speaks it, without access to environment, input or
// clock, and bounded in time and in the number of values. Numbers that an
// expression only passes on keep all their digits; arithmetic is exact for
// integers. A plain path (.a.b, .a["b c"]) is not run but read from the raw
// bytes.
package policy
