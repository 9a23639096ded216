package pgtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Database creates an empty database for the test and returns its URL. It is
// dropped at the end of the test, whoever is still connected to it.
func (s *Server) Database(t testing.TB, params ...string) string {
	t.Helper()
	name := databaseName(t)
	if err := s.exec("CREATE DATABASE " + name + " TEMPLATE template0"); err != nil {
		t.Fatalf("PostgreSQL: %v", err)
	}
	if s.shared { // else it goes with the server
		t.Cleanup(func() {
			if err := s.exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
				t.Errorf("PostgreSQL: %v", err)
			}
		})
	}
	return s.URL(name, params...)
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName is a new name that begins with the test's, for people.
func databaseName(t testing.TB) string {
	name := notInName.ReplaceAllString(strings.ToLower(t.Name()), "_")
	return fmt.Sprintf("%.40s_%08x", name, rand.Uint32())
}

// exec runs a statement in the database postgres.
func (c *cluster) exec(sql string, args ...any) error {
	return c.session(func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		return nil
	})
}

// ask reads one value in the database postgres.
func (c *cluster) ask(into any, sql string, args ...any) error {
	return c.session(func(ctx context.Context, conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, sql, args...).Scan(into); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		return nil
	})
}

func (c *cluster) session(do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return do(ctx, conn)
}

// through turns a database's URL into that of another way to it.
func through(t testing.TB, serverURL, addr string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = addr
	return u.String()
}
