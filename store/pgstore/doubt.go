package pgstore

import (
	"context"
	"fmt"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// doubtFor is how long after an unknown commit the server may still carry it out.
const doubtFor = 30 * time.Second

// unsure says that the outcome of a commit is not known.
func (s *Store) unsure(err error) error {
	s.doubted.Store(time.Now().UnixNano())
	return fmt.Errorf("%w: %w", idem.ErrCommitUnknown, err)
}

// certain makes sure, after a commit was called unknown, that what was just read
// survives a failover: a commit that was broken off while it waited for a
// synchronous standby can be read, and is not replicated yet. A commit that waits
// for the standbys itself, behind the read, covers it. (Where the store itself
// looks at a row after a lost connection, it locks it, which makes such a
// commit of the look.)
func (s *Store) certain(ctx context.Context) error {
	if time.Since(time.Unix(0, s.doubted.Load())) > doubtFor {
		return nil
	}
	return s.read(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, s.sql(`UPDATE {schema}.clock SET high = high`))
		return err
	})
}
