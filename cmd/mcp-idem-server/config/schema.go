package config

import (
	"bytes"
	_ "embed" // the schema
)

//go:embed testdata/mcp-idem.schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of the file. It knows the fields,
// not what may stand together: only Load says that a file is good. A variable
// (${NAME}) is allowed in any string, but in place of an enumerated value only
// Load takes it.
func Schema() []byte { return bytes.Clone(schema) }
