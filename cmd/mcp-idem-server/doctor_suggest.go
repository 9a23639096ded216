package main

import (
	"context"
	"errors"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/suggest"
)

// suggest prints policies for the tools that no policy matches: JSON with
// comments, to be pasted, or with --json the proposals as an array.
func (p *program) suggest(ctx context.Context, cfg *config.Config) error {
	if cfg == nil {
		return usagef("doctor --suggest needs --config FILE, or a command after --")
	}
	set, err := cfg.Set(nil)
	if err != nil {
		return err
	}
	lists, failed := p.list(ctx, cfg)
	proposals := []suggest.Proposal{}
	for i := range cfg.Upstreams {
		u := &cfg.Upstreams[i]
		var tools []suggest.Tool
		covered := map[string]bool{}
		for _, info := range lists[i] {
			t, err := suggest.ReadTool(info.Raw)
			if err != nil {
				return err
			}
			tools = append(tools, t)
			if _, has := set.Index(u.Name + "/" + t.Name); has || !u.Allows(t.Name) {
				covered[u.Name+"/"+t.Name] = true
			}
		}
		for _, one := range suggest.For(u.Name, tools) {
			if !covered[one.Tool] {
				proposals = append(proposals, one)
			}
		}
	}
	if p.flags.json {
		return errors.Join(p.printJSON(proposals), failed)
	}
	text, err := suggest.Text(proposals)
	if err == nil {
		_, err = p.out.Write(text)
	}
	return errors.Join(err, failed)
}
