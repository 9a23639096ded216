package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"
)

// decode reads JSON with comments into v. Every error but one of syntax names
// the path. lookup finds environment variables.
func decode(text []byte, v any, lookup func(string) (string, bool)) error {
	plain, err := hujson.Standardize(text)
	if err != nil {
		return fail("", "%s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	d := &decoder{jsontext.NewDecoder(bytes.NewBuffer(plain), jsontext.AllowDuplicateNames(true)), lookup}
	return d.value("", reflect.ValueOf(v).Elem())
}

type decoder struct {
	*jsontext.Decoder
	lookup func(string) (string, bool)
}

// textual are the types that are written as a string.
type textual interface {
	parse(string) error
	example() string
}

func (d *decoder) value(path string, v reflect.Value) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(path, v.Elem())
	}
	if t, ok := v.Addr().Interface().(textual); ok {
		s, err := d.text(path, t.example())
		if err != nil {
			return err
		}
		if err := t.parse(s); err != nil {
			return fail(path, "%q %v", s, err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.object(path, v)
	case reflect.Map:
		return d.table(path, v)
	case reflect.Slice:
		return d.list(path, v)
	case reflect.String:
		s, err := d.text(path, "a string")
		v.SetString(s)
		return err
	case reflect.Bool:
		tok, err := d.token(path, "true or false", 't', 'f')
		if err == nil {
			v.SetBool(tok.Kind() == 't')
		}
		return err
	case reflect.Int:
		tok, err := d.token(path, "a whole number", '0')
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(tok.String())
		if err != nil {
			return fail(path, "want a whole number, not %s", tok)
		}
		v.SetInt(int64(n))
		return nil
	default:
		panic("config: no way to read " + v.Type().String())
	}
}

func (d *decoder) next(path string) (jsontext.Token, error) {
	tok, err := d.ReadToken()
	if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		err = syn.Err // the path says the rest
	}
	if err != nil {
		return tok, fail(path, "%v", err)
	}
	return tok, nil
}

// token reads a token of one of the kinds.
func (d *decoder) token(path, want string, kinds ...jsontext.Kind) (jsontext.Token, error) {
	tok, err := d.next(path)
	if err != nil {
		return tok, err
	}
	if k := tok.Kind(); !slices.Contains(kinds, k) {
		return tok, fail(path, "want %s, not %s", want, map[jsontext.Kind]string{'n': "null", 't': "true", 'f': "false", '"': "a string", '0': "a number", '{': "an object", '[': "a list"}[k])
	}
	return tok, nil
}

func (d *decoder) text(path, want string) (string, error) {
	tok, err := d.token(path, want, '"')
	if err != nil {
		return "", err
	}
	return d.expand(path, tok.String())
}

var variable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// expand puts environment variables in.
func (d *decoder) expand(path, s string) (string, error) {
	var missing error
	out := variable.ReplaceAllStringFunc(s, func(ref string) string {
		value, ok := d.lookup(ref[2 : len(ref)-1])
		if !ok && missing == nil {
			missing = fail(path, "the environment variable %s is not set", ref[2:len(ref)-1])
		}
		return value
	})
	return out, missing
}

func (d *decoder) list(path string, v reflect.Value) error {
	if _, err := d.token(path, "a list", '['); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // given and empty is not absent
	for i := 0; d.PeekKind() != ']'; i++ {
		e := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(fmt.Sprintf("%s[%d]", path, i), e); err != nil {
			return err
		}
		v.Set(reflect.Append(v, e))
	}
	_, err := d.ReadToken()
	return err
}

// members reads an object's members, each name once.
func (d *decoder) members(path string, read func(at, name string) error) error {
	if _, err := d.token(path, "an object", '{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.PeekKind() != '}' {
		tok, err := d.next(path)
		if err != nil {
			return err
		}
		name := tok.String()
		at := join(path, name)
		if seen[name] {
			return fail(at, "comes twice")
		}
		seen[name] = true
		if err := read(at, name); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func (d *decoder) table(path string, v reflect.Value) error {
	v.Set(reflect.MakeMap(v.Type()))
	return d.members(path, func(at, name string) error {
		e := reflect.New(v.Type().Elem()).Elem()
		err := d.value(at, e)
		v.SetMapIndex(reflect.ValueOf(name), e)
		return err
	})
}

func (d *decoder) object(path string, v reflect.Value) error {
	fields, names := map[string]int{}, []string(nil)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = i
		names = append(names, name)
	}
	return d.members(path, func(at, name string) error {
		if i, ok := fields[name]; ok {
			field := v.Field(i)
			err := d.value(at, field)
			if err == nil && field.Kind() == reflect.String && field.Len() == 0 {
				return fail(at, "is empty; leave it out") // else it would be ignored
			}
			return err
		}
		if slices.Contains(laterFields(v.Type()), name) {
			return later(at, name)
		}
		if near := nearest(name, names); near != "" {
			return fail(at, "unknown field, did you mean %s? Allowed here: %s", near, list(names))
		}
		return fail(at, "unknown field. Allowed here: %s", list(names))
	})
}

var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

func join(path, name string) string {
	switch {
	case !plainName.MatchString(name):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}
