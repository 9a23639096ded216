package idem

import (
	"strings"
	"testing"
)

// benchArgs are the 200 bytes of an ordinary call.
const benchArgs = `{"order_id":"ord-2024-000123","amount":1299.5,"currency":"EUR","title":"Replace the broken display","labels":["urgent","vip"],"customer":{"id":9007199254740993,"name":"Jane \"J\" Roe"},"notify":true}`

func BenchmarkHashRequest(b *testing.B) {
	s := Scope{Tenant: "default", Tool: "tickets/create_ticket", Operation: "call"}
	for _, c := range []struct {
		name, args string
		sel        Selection
	}{
		{"200B", benchArgs, Selection{}},
		{"200B-ignore", benchArgs, Selection{Except: []Path{{"external_reference"}, {"customer", "name"}}}},
		{"64KiB-text", `{"path":"a","content":"` + strings.Repeat("0123456789abcde ", 4096) + `"}`, Selection{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			args := []byte(c.args)
			b.SetBytes(int64(len(args)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := HashRequest(s, args, c.sel); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFind(b *testing.B) {
	args := []byte(benchArgs)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := Find(args, Path{"customer", "id"}); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
