package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket/internal/testing/api"
)

// The documentation of every exported type has an example.
func TestEveryTypeHasAnExample(t *testing.T) {
	forEachModule(t, func(t *testing.T, folder, name string) {
		types, err := api.WithoutExample(folder, name)
		require.NoError(t, err)
		require.Empty(t, types, "write an example with output for each: ExampleType, ExampleType_Method, or of a function that returns it")
	})
}

// TestWithoutExample covers each place in which an example of a type can be.
func TestWithoutExample(t *testing.T) {
	folder, write := newFolder(t)
	write("a.go", `package a
type Itself int
type Method int
func (Method) Do() {}
type Option func()
func WithIt() Option { return nil }
type Inside int
type Silent int
type Mute int
type Never int
type hidden int
`)
	write("a_test.go", `package a
func ExampleInside() {
	// Output:
}
`)
	write("example_test.go", `package a_test
func ExampleItself_twice() {
	// Output: 1
}
func ExampleMethod_Do() {
	// Output: 1
}
func ExampleWithIt() {
	// Unordered output: 1
}
func ExampleSilent() {}
func ExampleNeverEver() {
	// Output: 1
}
`)
	write("b/b.go", "package b\ntype B int\n")
	write("cmd/main.go", "package main\ntype C int\n")
	write("internal/d/d.go", "package d\ntype D int\n")
	types, err := api.WithoutExample(folder, "a")
	require.NoError(t, err)
	require.Equal(t, []string{"a/b: B", "a: Mute", "a: Never", "a: Silent"}, types)
}
