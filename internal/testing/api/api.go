// Package api lists the exported names of a module's packages, one per line, and the types
// without an example. Its tests compare the lists with the files in the folder api, so
// reviewers see each change of an exported name, and require an example for each type.
package api

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// List returns the exported names of all packages below a folder that others may import,
// sorted. Nested modules and commands are left out. Lines begin with the package's path,
// in which prefix stands for the module.
func List(folder, prefix string) ([]string, error) {
	var lines []string
	err := walk(folder, prefix, func(path, importPath string) error {
		found, err := listPackage(path, importPath)
		lines = append(lines, found...)
		return err
	})
	slices.Sort(lines)
	return lines, err
}

// walk calls visit for folder and for each folder below it that others may import. It passes
// the path and the import path, in which prefix stands for the module.
func walk(folder, prefix string, visit func(path, importPath string) error) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if path != folder && isApart(path, entry.Name()) {
			return fs.SkipDir
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return visit(path, filepath.ToSlash(filepath.Join(prefix, relative)))
	})
}

// isApart reports whether a folder and all below it are outside the module's exported
// interface.
func isApart(path, name string) bool {
	module, _ := filepath.Glob(filepath.Join(path, "go.mod"))
	return len(module) > 0 || name[0] == '.' || slices.Contains([]string{"internal", "examples", "testdata"}, name)
}

// importFolder returns the package in a folder, nil if there is none or it is a command.
func importFolder(folder string) (*build.Package, error) {
	found, err := build.ImportDir(folder, 0)
	if _, none := err.(*build.NoGoError); none || err == nil && found.Name == "main" {
		return nil, nil
	}
	return found, err
}

// listPackage lists the exported names in the files of a package that are compiled on
// this platform, without tests.
func listPackage(folder, importPath string) ([]string, error) {
	compiled, err := importFolder(folder)
	if compiled == nil || err != nil {
		return nil, err
	}
	l := list{prefix: importPath + ": ", files: token.NewFileSet()}
	for _, name := range compiled.GoFiles {
		file, err := parser.ParseFile(l.files, filepath.Join(folder, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.FileExports(file)
		for _, declaration := range file.Decls {
			l.addDeclaration(declaration)
		}
	}
	return l.lines, nil
}

// list collects the lines of one package.
type list struct {
	prefix string
	files  *token.FileSet
	lines  []string
}

func (l *list) add(format string, args ...any) {
	l.lines = append(l.lines, l.prefix+fmt.Sprintf(format, args...))
}

// text returns a piece of code in one line.
func (l *list) text(node ast.Node) string {
	var code bytes.Buffer
	if err := printer.Fprint(&code, l.files, node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(code.String()), " ")
}

func (l *list) addDeclaration(declaration ast.Decl) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		l.addFunction(d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			l.addSpec(d.Tok, spec)
		}
	}
}

// addFunction adds a function or a method, without the name of its receiver. It leaves
// out methods of types that are not exported.
func (l *list) addFunction(d *ast.FuncDecl) {
	receiver := ""
	if d.Recv != nil {
		receiver = l.text(d.Recv.List[0].Type)
		if !ast.IsExported(strings.TrimLeft(receiver, "*")) {
			return
		}
		receiver = "(" + receiver + ") "
	}
	l.add("func %s%s", receiver, strings.TrimPrefix(l.text(&ast.FuncDecl{Name: d.Name, Type: d.Type}), "func "))
}

func (l *list) addSpec(word token.Token, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		kind := ""
		if s.Type != nil {
			kind = l.text(s.Type)
		}
		for _, name := range s.Names {
			l.add("%s", strings.TrimSpace(fmt.Sprint(word, " ", name, " ", kind)))
		}
	case *ast.TypeSpec:
		l.addType(s)
	}
}

// addType adds a type. Each field of a struct and each method of an interface gets its
// own line.
func (l *list) addType(s *ast.TypeSpec) {
	name := s.Name.Name
	if s.TypeParams != nil {
		name += parameters(l, s.TypeParams)
	}
	switch t := s.Type.(type) {
	case *ast.StructType:
		l.add("type %s struct", name)
		l.addFields(s.Name.Name, t.Fields)
	case *ast.InterfaceType:
		l.add("type %s interface", name)
		l.addFields(s.Name.Name, t.Methods)
	default:
		equals := ""
		if s.Assign.IsValid() {
			equals = "= "
		}
		l.add("type %s %s%s", name, equals, l.text(s.Type))
	}
}

func parameters(l *list, fields *ast.FieldList) string {
	var all []string
	for _, field := range fields.List {
		for _, name := range field.Names {
			all = append(all, name.Name+" "+l.text(field.Type))
		}
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (l *list) addFields(of string, fields *ast.FieldList) {
	for _, field := range fields.List {
		kind := strings.TrimPrefix(l.text(field.Type), "func")
		if len(field.Names) == 0 {
			l.add("%s embeds %s", of, kind)
		}
		for _, name := range field.Names {
			if _, isFunc := field.Type.(*ast.FuncType); !isFunc {
				kind = " " + l.text(field.Type)
			}
			l.add("%s.%s%s", of, name, kind)
		}
	}
}
