// Package torture runs guards on three hosts against one ledger in Postgres
// while connections are cut, the server is killed, and the hosts are killed or
// paused. Hosts are processes of their own. Effects are counted outside, by a
// shop that knows nothing of the ledger; what the store said to whom is checked
// to be linearizable.
package torture
