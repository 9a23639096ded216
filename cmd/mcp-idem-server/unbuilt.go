package main

import "github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"

// unbuilt refuses what a configuration can say and this gateway cannot do:
// refused, never ignored.
func unbuilt(cfg *config.Config) error {
	no := func(path, what string) error {
		return &config.Error{File: cfg.File, Path: path, Text: what + " is not supported yet by this version"}
	}
	for _, u := range cfg.Upstreams {
		if u.Type == config.TransportSSE {
			return no("mcpServers."+u.Name+".type", "the transport "+string(u.Type))
		}
	}
	return nil
}
