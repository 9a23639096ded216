package mcp

import "bytes"

// field is one member to set: its name, and its value as raw JSON; nil: the member
// is taken away.
type field struct {
	name  string
	value []byte
}

func (f field) appendTo(b []byte) []byte {
	b = append(b, quote(f.name)...)
	b = append(b, ':')
	return append(b, f.value...)
}

// setMembers returns the object with the fields set. Members of other names
// keep every byte and their order; those of the same name give way. A value
// that is no object becomes one with the fields alone; nil stands for none.
func setMembers(object []byte, fields ...field) ([]byte, error) {
	if len(fields) == 0 {
		return object, nil
	}
	type kept struct{ from, to int }
	var rest []kept
	var s scanner
	isObject := isObject(object)
	open, tail := 0, 0
	if isObject {
		open = bytes.IndexByte(object, '{') + 1
		tail = open
		err := s.members(object, func(name []byte, v span) {
			for _, f := range fields {
				if string(name) == `"`+f.name+`"` {
					tail = v.to
					return
				}
			}
			rest = append(rest, kept{tail, v.to})
			tail = v.to
		})
		if err != nil {
			return nil, err
		}
	}
	size := len(object) + 2
	for _, f := range fields {
		size += len(f.name) + len(f.value) + 4
	}
	out := make([]byte, 0, size)
	if !isObject {
		out = append(out, '{')
	} else {
		out = append(out, object[:open]...)
	}
	first := true
	for _, k := range rest { // each with the comma and the space before it
		part := object[k.from:k.to]
		if first {
			part = bytes.TrimPrefix(bytes.TrimLeft(part, " \t\r\n"), []byte(","))
			if k.from == open {
				part = object[k.from:k.to]
			}
		}
		out = append(out, part...)
		first = false
	}
	for _, f := range fields {
		if f.value == nil {
			continue
		}
		if !first {
			out = append(out, ',')
		}
		out = f.appendTo(out)
		first = false
	}
	if !isObject {
		return append(out, '}'), nil
	}
	return append(out, object[tail:]...), nil
}

// isObject reports whether a raw value is an object, by its first byte.
func isObject(value []byte) bool {
	value = bytes.TrimLeft(value, " \t\r\n")
	return len(value) > 0 && value[0] == '{'
}

// setIn sets fields in the object that is a member of an object, and leaves
// every other byte alone. The member is made where it is missing, and so is the
// object.
func setIn(object []byte, name string, fields ...field) ([]byte, error) {
	if len(fields) == 0 {
		return object, nil
	}
	if !isObject(object) {
		inner, _ := setMembers(nil, fields...)
		return setMembers(nil, field{name, inner})
	}
	at, err := member(object, name)
	if err != nil {
		return nil, err
	}
	if !at.there() {
		inner, _ := setMembers(nil, fields...)
		return setMembers(object, field{name, inner})
	}
	inner, err := setMembers(at.of(object), fields...)
	if err != nil {
		return nil, err
	}
	return splice(object, at, inner), nil
}

// splice puts a value in the place of another.
func splice(line []byte, at span, value []byte) []byte {
	out := make([]byte, 0, len(line)-(at.to-at.from)+len(value))
	out = append(out, line[:at.from]...)
	out = append(out, value...)
	return append(out, line[at.to:]...)
}

// withParams is a request's line with other params, and where its id is then.
func (e *envelope) withParams(params []byte) ([]byte, span) {
	line, id := splice(e.line, e.params, params), e.id
	if e.params.from < id.from {
		shift := len(line) - len(e.line)
		id = span{id.from + shift, id.to + shift}
	}
	return line, id
}
