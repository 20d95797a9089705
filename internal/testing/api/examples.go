package api

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
)

// WithoutExample returns the exported types of all packages below a folder, as List does,
// whose documentation has no example with output. An example of a method, or of a function
// that returns the type, counts.
func WithoutExample(folder, prefix string) ([]string, error) {
	var types []string
	err := walk(folder, prefix, func(path, importPath string) error {
		documented, err := document(path, importPath)
		if documented == nil || err != nil {
			return err
		}
		for _, t := range documented.Types {
			if !slices.ContainsFunc(examplesOf(t), hasOutput) {
				types = append(types, importPath+": "+t.Name)
			}
		}
		return nil
	})
	slices.Sort(types)
	return types, err
}

// document returns the documentation of the package in a folder with its examples, nil if
// there is no package.
func document(folder, importPath string) (*doc.Package, error) {
	found, err := importFolder(folder)
	if found == nil || err != nil {
		return nil, err
	}
	var files []*ast.File
	set := token.NewFileSet()
	for _, name := range slices.Concat(found.GoFiles, found.TestGoFiles, found.XTestGoFiles) {
		file, err := parser.ParseFile(set, filepath.Join(folder, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return doc.NewFromFiles(set, files, importPath)
}

func examplesOf(t *doc.Type) []*doc.Example {
	all := t.Examples
	for _, f := range slices.Concat(t.Funcs, t.Methods) {
		all = append(all, f.Examples...)
	}
	return all
}

func hasOutput(e *doc.Example) bool { return e.Output != "" || e.EmptyOutput }
