// Package pgstore is the ledger that several hosts share: a schema in a
// PostgreSQL database.
package pgstore
