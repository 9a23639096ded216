package mcp

import "testing"

// A field without a value takes its member away.
func TestUnsetMembers(t *testing.T) {
	t.Parallel()
	const object = ` {"a": 1 , "b":{"a":2}, "c":3 }`
	for _, test := range []struct {
		object string
		fields []field
		want   string
	}{
		{object, []field{{"a", nil}}, ` { "b":{"a":2}, "c":3 }`},
		{object, []field{{"b", nil}}, ` {"a": 1, "c":3 }`},
		{object, []field{{"c", nil}}, ` {"a": 1 , "b":{"a":2} }`},
		{object, []field{{"a", nil}, {"b", nil}, {"c", nil}}, ` { }`},
		{object, []field{{"d", nil}}, object},
		{object, []field{{"c", nil}, {"a", []byte(`4`)}}, ` { "b":{"a":2},"a":4 }`},
		{`{}`, []field{{"a", nil}}, `{}`},
		{``, []field{{"a", nil}}, `{}`},
	} {
		got, err := setMembers([]byte(test.object), test.fields...)
		if err != nil || string(got) != test.want {
			t.Errorf("%s with %v: got %s, %v, want %s", test.object, test.fields, got, err, test.want)
		}
	}
}
