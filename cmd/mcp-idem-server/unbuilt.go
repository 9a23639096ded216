package main

import "github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"

// unbuilt refuses what a configuration can say and this gateway cannot do:
// refused, never ignored.
func unbuilt(cfg *config.Config) error {
	no := func(path, what string) error {
		return &config.Error{File: cfg.File, Path: path, Text: what + " is not supported yet by this version"}
	}
	if len(cfg.Upstreams) > 1 {
		return no("mcpServers", "more than one server")
	}
	for _, u := range cfg.Upstreams {
		switch at := "mcpServers." + u.Name; {
		case u.Type != config.TransportStdio:
			return no(at+".type", "the transport "+string(u.Type))
		case u.Allow != nil:
			return no(at+".allow", "allow")
		case u.Deny != nil:
			return no(at+".deny", "deny")
		case cfg.Prefixed():
			return no("names", "prefix")
		}
	}
	return nil
}
