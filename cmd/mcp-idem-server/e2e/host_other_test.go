//go:build !linux

package e2e

// hostMain is the first process of a host. Hosts are made of Linux's namespaces.
func hostMain([]string) int { return 2 }
