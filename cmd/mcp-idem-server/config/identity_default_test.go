package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-idem/mcp-idem/mcp"
)

// TestDefaultIdentity: a middleware and the gateway look in the same places.
func TestDefaultIdentity(t *testing.T) {
	ours, theirs := defaultIdentity(), mcp.DefaultIdentity()
	same := mcp.Identity{Task: ours.Task, Run: ours.Run, Step: ours.Step, Key: ours.Key, GenericKey: ours.GenericKey, Alias: ours.Alias}
	if d := cmp.Diff(theirs, same); d != "" {
		t.Error(d)
	}
}
