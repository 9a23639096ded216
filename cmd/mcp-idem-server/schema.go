package main

import (
	"github.com/spf13/cobra"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

func (p *program) schema() *cobra.Command {
	return &cobra.Command{Use: "schema", Short: "Print the JSON Schema of the configuration file, for editors", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.out.Write(config.Schema())
			return err
		}}
}
