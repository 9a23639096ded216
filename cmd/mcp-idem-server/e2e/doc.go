// Package e2e tests the gateway as its users run it: the built binary in front
// of real servers, killed with SIGKILL where it hurts. Effects are counted in
// the servers' own storage, never in the ledger.
package e2e
