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
// [Start] one that a test may stop, kill or pause. Both have fsync on.
//
// The programs are those of the machine (Debian: apt-get install postgresql),
// version 15 at least. Without them the tests that ask for a server are
// skipped, and fail when CI=true. With -short they are skipped.
//
// Everything lies in one temporary folder of the test process. No server and no
// folder outlives that process, also when it is killed: a watchdog, a small
// shell script, sees its end.
package pgtest
