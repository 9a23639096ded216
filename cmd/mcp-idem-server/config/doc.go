// Package config reads the server's configuration file: JSON with comments,
// whose fields are those of the types here.
//
// Nothing in it is ever ignored. A field that is unknown, comes twice, is of
// the wrong type, or belongs to a later version is an [*Error] that names the
// file, the path in it (policies[0].retry.max) and what would be allowed; so is
// a combination that would break the protocol's promise. A ${NAME} in any
// string is the environment variable's value, and an error where that is not
// set.
package config
