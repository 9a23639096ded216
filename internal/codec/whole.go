package codec

import (
	"bytes"
	"fmt"

	idem "github.com/mcp-idem/mcp-idem"
)

// OpenWhole is Open for a row that is to be stored somewhere else. It refuses
// one that holds more than this program reads, which would be lost on the way:
// a newer program has written it. (A field that is added to a row is therefore
// left out of the encoding while it is empty.)
func OpenWhole(ref idem.Ref, b []byte) (idem.Row, error) {
	r, err := Open(ref, b)
	if err != nil {
		return idem.Row{}, err
	}
	again, err := Body(&r)
	if err != nil {
		return idem.Row{}, err
	}
	if !bytes.Equal(again, b[HeaderSize:]) {
		return idem.Row{}, fmt.Errorf("row %d/%s: it holds what this program does not know and would lose: use the newer version that wrote it", ref.Kind, ref.ID)
	}
	return r, nil
}
