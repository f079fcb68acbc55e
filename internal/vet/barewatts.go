package vet

import (
	"go/ast"
	"go/types"
	"reflect"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/tools/go/analysis"
)

// BareWatts returns the analyzer of exported names that say watts or joules and are
// plain floats.
//
// A name says it with a word Watt, Watts, Joule or Joules, or with W, KW, J or KJ as its
// last word. Names with the word Per are ratios. A struct field whose tag ends in the
// unit (cap_w, spent_j) stands at the edge, where the reader gets a number and the
// name is its type. Package units converts, and is not judged.
func BareWatts() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "barewatts",
		Doc:  "report exported floats that are watts or joules",
		Run:  bareWatts,
	}
}

func bareWatts(pass *analysis.Pass) (any, error) {
	if pass.Pkg.Path() == module+"/units" || pass.Pkg.Name() == "main" {
		return nil, nil
	}
	b := bare{pass}
	for _, f := range written(pass) {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && (d.Recv == nil || b.exported(d.Recv.List[0].Type)) {
					b.function(d.Name, d.Type)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					b.spec(s)
				}
			}
		}
	}
	return nil, nil
}

type bare struct{ pass *analysis.Pass }

func (b bare) exported(recv ast.Expr) bool {
	id, ok := root(b.pass.TypesInfo, recv).(*types.TypeName)
	return ok && id.Exported()
}

func (b bare) spec(s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			b.name(name, b.pass.TypesInfo.TypeOf(name))
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return
		}
		switch t := s.Type.(type) {
		case *ast.StructType:
			for _, f := range t.Fields.List {
				if f.Tag != nil && unitInTag(f.Tag.Value) {
					continue
				}
				for _, name := range f.Names {
					b.name(name, b.pass.TypesInfo.TypeOf(f.Type))
				}
			}
		case *ast.InterfaceType:
			for _, m := range t.Methods.List {
				if f, ok := m.Type.(*ast.FuncType); ok && m.Names[0].IsExported() {
					b.function(m.Names[0], f)
				}
			}
		case *ast.FuncType:
			b.function(s.Name, t)
		}
	}
}

// name judges an exported constant, variable or field.
func (b bare) name(name *ast.Ident, t types.Type) {
	if name.IsExported() && saysEnergy(name.Name) && isBare(t) {
		b.pass.Reportf(name.Pos(), "%s is a bare float: watts and joules leave a package as units.Power and units.Energy", name.Name)
	}
}

// function judges parameters and results; an unnamed result has the function's name.
func (b bare) function(name *ast.Ident, f *ast.FuncType) {
	for _, p := range f.Params.List {
		b.parameter(p, "")
	}
	if f.Results != nil {
		for _, r := range f.Results.List {
			b.parameter(r, name.Name)
		}
	}
}

func (b bare) parameter(p *ast.Field, otherwise string) {
	t := b.pass.TypesInfo.TypeOf(p.Type)
	says := otherwise != "" && saysEnergy(otherwise)
	for _, name := range p.Names {
		says = says || saysEnergy(name.Name)
	}
	if says && isBare(t) {
		b.pass.Reportf(p.Pos(), "bare float: watts and joules leave a package as units.Power and units.Energy")
	}
}

// isBare reports whether a type is a float, or holds floats, without a name of its own.
func isBare(t types.Type) bool {
	switch t := types.Unalias(t).(type) {
	case *types.Basic:
		return t.Info()&types.IsFloat != 0
	case *types.Pointer:
		return isBare(t.Elem())
	case *types.Slice:
		return isBare(t.Elem())
	case *types.Array:
		return isBare(t.Elem())
	case *types.Map:
		return isBare(t.Elem())
	case *types.Chan:
		return isBare(t.Elem())
	}
	return false
}

func saysEnergy(name string) bool {
	all := wordsOf(name)
	says := false
	for i, w := range all {
		switch strings.ToLower(w) {
		case "per":
			return false
		case "watt", "watts", "joule", "joules":
			says = true
		case "w", "kw", "j", "kj":
			says = says || i == len(all)-1 && i > 0
		}
	}
	return says
}

// wordsOf splits a name in mixed caps: "RatedW" is Rated, W; "CPUWatts" is CPU, Watts.
func wordsOf(name string) []string {
	var words []string
	r := []rune(name)
	from := 0
	for i := 1; i < len(r); i++ {
		starts := unicode.IsUpper(r[i]) && (!unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1]))
		if starts || r[i] == '_' {
			words = append(words, strings.Trim(string(r[from:i]), "_"))
			from = i
		}
	}
	return append(words, strings.Trim(string(r[from:]), "_"))
}

var unitName = regexp.MustCompile(`(^|_)(k?w|k?j|watts|joules)$`)

// unitInTag reports whether a struct tag names the field on the wire with its unit.
func unitInTag(literal string) bool {
	tag := reflect.StructTag(strings.Trim(literal, "`"))
	for _, key := range []string{"json", "yaml"} {
		if name, _, _ := strings.Cut(tag.Get(key), ","); unitName.MatchString(name) {
			return true
		}
	}
	return false
}
