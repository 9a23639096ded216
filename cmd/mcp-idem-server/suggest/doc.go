// Package suggest looks at the tools of a server and proposes policies for them:
// which only read, and how the outcome of a write could be asked for. All it has
// are names, annotations and schemas, so a person has to accept what it says.
// What it cannot tell for sure is proposed as a comment: a query that finds
// nothing because it is wrong would have a write repeated.
package suggest
