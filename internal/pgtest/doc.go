// Package pgtest runs real PostgreSQL servers for tests, and breaks them.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) } // optional
//
//	func TestStore(t *testing.T) {
//		url := pgtest.Shared(t).Database(t) // an empty database, dropped at the end
//		...
//	}
//
// [Shared] is the server for all tests of a package that leave it in peace,
// [Start] one that a test may break. Both have PostgreSQL's defaults, fsync
// among them; [Set] changes one.
//
// # The server
//
//	s := pgtest.Start(t, pgtest.Set("max_connections", "20"))
//	url := s.Database(t)
//	s.Kill()                   // postmaster and all, by SIGKILL
//	s.Start()                  // recovers, on the same port
//	s.Restart(pgtest.Fast)     // or pgtest.Immediate
//	s.Pause(); s.Resume()      // nothing answers; connections stay open
//	standby := s.Standby(t)    // read only, until standby.Promote()
//	pooled := s.Bouncer(t, 20) // PgBouncer, pooling transactions
//
// Clients of a [Bouncer] must not prepare statements; with pgx that is
// default_query_exec_mode=exec or simple_protocol in the URL.
//
// # The network
//
//	p := s.Proxy(t) // also of the shared server
//	db := connect(p.Through(url))
//	p.Cut(); p.Restore()
//	p.Latency(pgtest.Up, 50*time.Millisecond, 0)
//	p.Timeout(pgtest.Down, 0) // half open: answers vanish
//	p.Heal()
//
// What a network loses is chosen by request, not by luck, with a [Trap]:
//
//	lost := p.DropNextResponse("commit")
//	err := tx.Commit(ctx)                // a connection error
//	lost.Wait() == "COMMIT"              // but it was executed
//
// [Proxy.DropNextRequest] is the counterpart: the same error, and nothing was
// executed. With [Proxy.HoldNextRequest] it is executed later, perhaps after
// the client has given up. Traps read the protocol, so they see nothing of a
// connection with TLS.
//
// # The machine
//
// The programs are those of the machine (Debian: apt-get install postgresql
// pgbouncer), version 15 at least, run as postgres or nobody where the tests
// run as root. Without them the tests that ask for a server are skipped, and
// fail when CI=true; with -short they are skipped. A failed test shows the end
// of its servers' logs.
//
// Everything lies in one temporary folder of the test process. No server and no
// folder outlives that process, also when it is killed: a watchdog, a small
// shell script, sees its end.
package pgtest
