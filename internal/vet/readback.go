package vet

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// ReadBack returns the analyzer of hardware writes.
//
// A write is one of three: raw, which says nothing of what stands there and needs a call
// named Read or Pread on the same variable later in the function (a function that has
// the raw write's own name forwards it, and its caller reads back); one that returns
// what it read back, which may not be thrown away; and one that also compares, which is
// content when the error is kept. Writes are called by the device packages and by the
// agent, the one writer; so are files below /sys that hold limits.
func ReadBack() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "readback",
		Doc:  "report hardware writes whose result nobody reads back, and writers that are not the agent",
		Run:  readBack,
	}
}

// promise is what a write does about reading back.
type promise int

const (
	noWrite  promise = iota
	raw              // nothing
	returns          // the first result is what reads back
	compares         // and the error says when that is not what was written
)

// writes are the functions that change a control of the machine. Registers of rapl/msr
// are written below a sysfs.File, whose writer reads back.
func writes() map[string]promise {
	return map[string]promise{
		"(headroom/rapl/sysfs.File).Pwrite":    raw,
		"(*headroom/rapl/sysfs.Control).Write": returns,
		"(*headroom/rapl.Limiter).SetPower":    compares,
		"(*headroom/rapl.Limiter).SetWindow":   compares,
		"(*headroom/dvfs.Ceiling).Set":         compares,
		"(*headroom/dvfs.Ceilings).SetEach":    returns,
		"(*headroom/dvfs.Preference).Set":      compares,
		"(*headroom/dvfs.TurboSwitch).Allow":   compares,
		"(*headroom/ipmi.Meter).SetLimit":      compares,
		"(*headroom/ipmi.Meter).ClearLimit":    compares,
		"(*headroom/ipmi.Meter).RestoreLimit":  compares,
		"(*headroom/systemd.Slice).Set":        compares,
		"(*headroom/systemd.Slice).PutBack":    compares,
	}
}

// writers are the packages, and all below them, that may write.
func writers() []string {
	return []string{module + "/agent", module + "/rapl", module + "/dvfs", module + "/ipmi", module + "/systemd"}
}

func readBack(pass *analysis.Pass) (any, error) {
	known := writes()
	may := slices.ContainsFunc(writers(), func(w string) bool {
		return pass.Pkg.Path() == w || strings.HasPrefix(pass.Pkg.Path(), w+"/")
	})
	lost(pass, known)
	for _, f := range written(pass) {
		for _, d := range f.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok || decl.Body == nil {
				continue
			}
			thrown := discarded(decl.Body)
			ast.Inspect(decl.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				f := called(pass.TypesInfo, call)
				if f == nil {
					return true
				}
				kind := known[f.FullName()]
				switch {
				case !may && (kind != noWrite || opensControl(pass.TypesInfo, f, call)):
					pass.Reportf(call.Pos(), "%s writes hardware: only the agent does", f.Name())
				case kind == raw && decl.Name.Name != f.Name() && !readAfter(pass.TypesInfo, decl.Body, call),
					kind == returns && thrown[call].value && !readAfter(pass.TypesInfo, decl.Body, call):
					pass.Reportf(call.Pos(), "%s writes hardware and nothing reads back what it holds", f.Name())
				case kind == compares && thrown[call].value && thrown[call].err:
					pass.Reportf(call.Pos(), "%s writes hardware, and neither its read-back nor its error is looked at", f.Name())
				}
				return true
			})
		}
	}
	return nil, nil
}

// lost reports writes of this package that the table names and nobody declares any more:
// a table that lags behind judges nothing.
func lost(pass *analysis.Pass, known map[string]promise) {
	if len(written(pass)) == 0 {
		return // the package's tests alone
	}
	for name := range known {
		of, method, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, "("), "*"), ").")
		at := strings.LastIndex(of, ".")
		if of[:at] != pass.Pkg.Path() {
			continue
		}
		if t := pass.Pkg.Scope().Lookup(of[at+1:]); t != nil {
			if f, _, _ := types.LookupFieldOrMethod(types.NewPointer(t.Type()), false, pass.Pkg, method); f != nil {
				continue
			}
			if f, _, _ := types.LookupFieldOrMethod(t.Type(), false, pass.Pkg, method); f != nil {
				continue
			}
		}
		pass.Reportf(written(pass)[0].Name.Pos(), "internal/vet names %s, which is not there", name)
	}
}

// loss says which results of a call are thrown away.
type loss struct{ value, err bool }

// discarded are the calls whose first or last result goes nowhere.
func discarded(body ast.Node) map[*ast.CallExpr]loss {
	out := map[*ast.CallExpr]loss{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.ExprStmt:
			if call, ok := ast.Unparen(x.X).(*ast.CallExpr); ok {
				out[call] = loss{true, true}
			}
		case *ast.DeferStmt:
			out[x.Call] = loss{true, true}
		case *ast.GoStmt:
			out[x.Call] = loss{true, true}
		case *ast.AssignStmt:
			if call, ok := ast.Unparen(x.Rhs[0]).(*ast.CallExpr); ok && len(x.Rhs) == 1 {
				out[call] = loss{isBlank(x.Lhs[0]), isBlank(x.Lhs[len(x.Lhs)-1])}
			}
		}
		return true
	})
	return out
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// readAfter reports whether a later call reads through the variable that was written.
func readAfter(info *types.Info, body ast.Node, write *ast.CallExpr) bool {
	sel, ok := ast.Unparen(write.Fun).(*ast.SelectorExpr)
	if !ok {
		return false
	}
	to, found := root(info, sel.X), false
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || call.Pos() <= write.Pos() {
			return true
		}
		s, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if ok && to != nil && root(info, s.X) == to && slices.Contains([]string{"Read", "ReadBack", "Pread", "Limit", "read"}, s.Sel.Name) {
			found = true
		}
		return true
	})
	return found
}

// opensControl reports whether a call opens a power limit or frequency of this machine
// by a constant path, to write.
func opensControl(info *types.Info, f *types.Func, call *ast.CallExpr) bool {
	switch f.FullName() {
	case "os.WriteFile", "os.Create", "(*os.Root).WriteFile", "(*os.Root).Create":
	case "os.OpenFile", "(*os.Root).OpenFile":
		if v := info.Types[call.Args[1]].Value; v == nil || constant.Compare(constant.BinaryOp(v, token.AND, constant.MakeInt64(3)), token.EQL, constant.MakeInt64(0)) {
			return false // O_RDONLY, or not said here
		}
	default:
		return false
	}
	v := info.Types[call.Args[0]].Value
	if v == nil || v.Kind() != constant.String {
		return false
	}
	path := constant.StringVal(v)
	return slices.ContainsFunc([]string{"/sys/class/powercap", "/sys/devices/virtual/powercap", "/sys/devices/system/cpu", "/dev/cpu/"}, func(p string) bool {
		return strings.HasPrefix(path, p)
	})
}
