// Package integrations shows how the limiters of this module work with other packages.
// Each file is one recipe, to be copied; README.md lists them.
package integrations
