package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	idem "github.com/mcp-idem/mcp-idem"
)

// maxIdentifier is the most bytes of a value that identify something by
// themselves; longer ones do by their digest.
const maxIdentifier = 64

// Identifier turns a value of jq into what identifies an outside object: a
// string itself, any other value its canonical JSON, and "sha256:" and the
// digest in hex where that has more than 64 bytes. null gives "". A boolean is
// an error: yes and no identify nothing, and are surely a slip.
func Identifier(v any) (string, error) {
	var text string
	switch v := v.(type) {
	case nil:
		return "", nil
	case bool:
		return "", fmt.Errorf("%v identifies nothing", v)
	case string:
		text = v
	default:
		raw, err := Encode(v)
		if err != nil {
			return "", err
		}
		if raw, err = idem.Canonical(raw); err != nil {
			return "", err
		}
		text = string(raw)
	}
	if len(text) > maxIdentifier {
		sum := sha256.Sum256([]byte(text))
		return "sha256:" + hex.EncodeToString(sum[:]), nil
	}
	return text, nil
}
