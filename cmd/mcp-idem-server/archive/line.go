package archive

import (
	"bytes"
	"encoding/json"
	"fmt"

	idem "github.com/mcp-idem/mcp-idem"
)

const (
	formatName    = "mcp-idem ledger"
	formatVersion = 1
	// maxLine bounds one line, bytes: a file of another kind may have no line
	// end at all.
	maxLine = 256 << 20
)

// header is the first line.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Program string `json:"program"` // that wrote it, for people
}

// line is one row.
type line struct {
	Kind    string       `json:"kind"`
	ID      string       `json:"id"`
	Version idem.Version `json:"version"`
	Row     []byte       `json:"row"` // as codec.Seal makes it
}

// trailer is the last line.
type trailer struct {
	Rows   int    `json:"rows"`
	Clock  string `json:"clock"` // RFC 3339, nanoseconds
	SHA256 string `json:"sha256"`
}

// kinds are the names of the kinds of rows.
var kinds = map[idem.Kind]string{
	idem.KindOperation: "operation", idem.KindKey: "key", idem.KindSlot: "slot",
	idem.KindDelivery: "delivery", idem.KindAlias: "alias", idem.KindCommand: "command", idem.KindTask: "task",
}

func kindOf(name string) (idem.Kind, bool) {
	for k, n := range kinds {
		if n == name {
			return k, true
		}
	}
	return 0, false
}

// encode is the one form of a line, its end included.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, '\n'), err
}

// decode reads a line that is in its one form.
func decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("it cannot be read (%w)", err)
	}
	again, err := encode(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, b) {
		return errEdited
	}
	return nil
}
