package pgstore

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestJudge: an error says that nothing was changed only where that is certain.
func TestJudge(t *testing.T) {
	code := func(code string) error { return &pgconn.PgError{Code: code, SeverityUnlocalized: "ERROR"} }
	for _, tc := range []struct {
		name string
		err  error
		want fate
	}{
		{"serialization", code("40001"), again},
		{"deadlock", code("40P01"), again},
		{"completion unknown", code("40003"), unknown},
		{"transaction resolution unknown", code("08007"), unknown},
		{"connection failure", code("08006"), unknown},
		{"lock timeout", code("55P03"), again},
		{"cancelled", code("57014"), again},
		{"disk full", code("53100"), refused},
		{"too many connections", code("53300"), elsewhere},
		{"read-only", code("25006"), elsewhere},
		{"a race of ours", &pgconn.PgError{Code: "23505", ConstraintName: "mcp_idem_entry_key"}, again},
		{"another table's constraint", &pgconn.PgError{Code: "23505", ConstraintName: "entry_pkey"}, refused},
		{"syntax", code("42601"), refused},
		{"shutdown", &pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL"}, unknown},
		{"a pooler's", &pgconn.PgError{Code: "08P01", Severity: "FATAL"}, unknown},
		{"no connection", fmt.Errorf("%w: %w", errNoConnection, io.EOF), elsewhere},
		{"lost", io.ErrUnexpectedEOF, unknown},
		{"another ledger", fmt.Errorf("%w: there", ErrGone), refused},
		{"conn closed", pgconn.ErrConnClosed, unknown},
		{"anything else", errors.New("?"), unknown},
	} {
		if got := judge(tc.err); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
