package reconcilers

import (
	"context"

	idem "github.com/mcp-idem/mcp-idem"
)

// Func is a Go function as a reconciler. It must keep to what
// [idem.Reconciler] says of Query.
type Func func(ctx context.Context, q idem.Lookup) (idem.Finding, error)

// Query implements [idem.Reconciler].
func (f Func) Query(ctx context.Context, q idem.Lookup) (idem.Finding, error) { return f(ctx, q) }
