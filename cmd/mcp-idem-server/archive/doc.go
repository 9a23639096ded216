// Package archive is the file that export writes and import reads: a whole
// ledger, independent of the store it was in.
//
// It is text, one JSON object a line:
//
//	{"format":"mcp-idem ledger","version":1,"program":"v0.2.0"}
//	{"kind":"operation","id":"…","version":3,"row":"…"}
//	{"rows":1,"clock":"2026-01-02T15:04:05.000000006Z","sha256":"…"}
//
// First a header, then every row of one snapshot by kind and id, each once, and
// last a trailer. A row's version is the one that commits compare; the row is its
// stored form in base64: format byte, version, a checksum over kind, id, version
// and content, and the content in CBOR. The clock is the ledger's at the
// snapshot. The SHA-256 is of every byte before the trailer, and of the trailer
// itself while its sha256 is empty.
//
// Every line has one form only, so that what reads back is what was written,
// byte for byte: a file that was cut, edited, sorted anew or put together is an
// *Error with the line. Memory does not grow with the file.
package archive
