package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParseLedger(t *testing.T) {
	for text, want := range map[string]Ledger{
		"ledger.db":                  BoltAt("ledger.db"),
		"/var/lib/ledger.db":         BoltAt("/var/lib/ledger.db"),
		"./postgres:x":               BoltAt("./postgres:x"),
		"bolt:///var/lib/ledger.db":  BoltAt("/var/lib/ledger.db"),
		"bolt://rel/ledger.db":       BoltAt("rel/ledger.db"),
		"postgres://db/idem":         {Kind: LedgerPostgres, url: "postgres://db/idem", name: "postgres://db/idem"},
		"postgresql://u@db:5433/x":   {Kind: LedgerPostgres, url: "postgresql://u@db:5433/x", name: "postgresql://u@db:5433/x"},
		"Postgres://u@db/x":          {Kind: LedgerPostgres, url: "postgres://u@db/x", name: "postgres://u@db/x"},
		"postgres://":                {Kind: LedgerPostgres, url: "postgres://", name: "postgres://"},
		"postgres:///x?host=/tmp":    {Kind: LedgerPostgres, url: "postgres:///x?host=/tmp", name: "postgres:///x?host=%2Ftmp"},
		"postgres://u@a:1,b:2/x":     {Kind: LedgerPostgres, url: "postgres://u@a:1,b:2/x", name: "postgres://u@a:1,b:2/x"},
		"postgres://u:se%2Fcret@d/x": {Kind: LedgerPostgres, url: "postgres://u:se%2Fcret@d/x", name: "postgres://u:xxxxx@d/x"},
		"postgres://u@d/x?password=secret&sslpassword=secret&sslmode=require": {Kind: LedgerPostgres,
			url:  "postgres://u@d/x?password=secret&sslpassword=secret&sslmode=require",
			name: "postgres://u@d/x?password=xxxxx&sslmode=require&sslpassword=xxxxx"},
	} {
		if got, err := ParseLedger("ledger", text); err != nil || got != want {
			t.Errorf("%s: %s, error %v, want %s", text, got.name+got.Path, err, want.name+want.Path)
		}
	}
}

// secret is in every place below where a password may be, rightly or by mistake.
const secret = "hunter2"

func TestNoPasswordIsShown(t *testing.T) {
	for _, text := range []string{
		"postgres://u:hunter2@h/db", "postgresql://u:hunter2@h/db?sslmode=disable", "POSTGRES://u:hunter2@h/db", "postgres://:hunter2@/db",
		"postgres://u@h/db?password=hunter2", "postgres://u@h/db?PassWord=hunter2", "postgres://u:a@hunter2@h/db",
		"postgres://u:a/hunter2@h/db", "postgres://u:1/hunter2@h/db", "postgres://u:1?hunter2@h/db", "postgres://u:1#hunter2@h/db",
		"postgres://u:%zz-hunter2@h/db", "postgres://u:hunter2@h:port/db", "postgres://u:hunter2@h/db?x=%zz", "postgres:u:hunter2@h/db",
		"postgres:/u:hunter2@h/db", "bolt://u:hunter2@h/db", "mysql://u:hunter2@h/db", "host=h password=hunter2", "password = hunter2", "dbname=x password='hunter2'",
	} {
		l, err := ParseLedger("ledger", text)
		if err != nil && !errors.As(err, new(*Error)) {
			t.Errorf("%s: %T is no *Error", text, err)
		}
		js, jerr := json.Marshal(map[string]any{"ledger": l, "all": Config{Ledger: l}})
		if jerr != nil {
			t.Fatal(jerr)
		}
		c := &Config{Ledger: l}
		shown := fmt.Sprint(err, l, &l, c) + fmt.Sprintf("%v %+v %#v %s %q %v", l, l, l, l, l, []Ledger{l}) + fmt.Sprintf("%+v %#v", *c, *c) + string(js)
		if strings.Contains(shown, secret) {
			t.Errorf("%s is shown: %s", text, shown)
		}
	}
}

func TestLedgerOfTheEnvironment(t *testing.T) {
	lookup := func(name string) (string, bool) { return secret, name == "LEDGER_PASSWORD" }
	c, err := parse([]byte(`{"ledger":"postgres://u:${LEDGER_PASSWORD}@h/db"}`), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Ledger.ConnectionURL(); got != "postgres://u:hunter2@h/db" {
		t.Fatalf("%q", got)
	}
	if got := c.Ledger.String(); got != "postgres://u:xxxxx@h/db" {
		t.Fatalf("%q", got)
	}
}
