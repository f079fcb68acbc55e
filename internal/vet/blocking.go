package vet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Blocking returns the analyzer of control paths: functions marked //headroom:control
// and what they reach in their package.
//
// They may not wait: for a disk (package os and *os.File, renameio, durable), a network or a
// name (net, net/http), a program (os/exec), a clock (time.Sleep), other goroutines
// (WaitGroup.Wait, Cond.Wait), the reader of a log that is written directly (log,
// slog's default logger, os.Stdout, os.Stderr), or the receiver of a channel: a send
// stands in a select with a default. A channel is taken to have room when every make in
// the package that sets its variable or field names a size; whoever gives it that size
// says why it suffices. Files of the kernel, through rapl/sysfs, do not wait.
func Blocking() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "blocking",
		Doc:  "report what a control path may wait for",
		Run:  blocking,
	}
}

func blocking(pass *analysis.Pass) (any, error) {
	info := pass.TypesInfo
	roomy := channels(pass)
	for _, r := range reach(pass, "control") {
		free := freeSends(info, r.decl.Body, roomy)
		beside(info, r.decl.Body, func(n ast.Node) {
			switch x := n.(type) {
			case *ast.CallExpr:
				if f := called(info, x); f != nil {
					if why := waits(f); why != "" {
						pass.Reportf(x.Pos(), "%s waits for %s in a control path (%s)", f.Name(), why, r.path)
					}
				}
			case *ast.SelectorExpr:
				if v, ok := info.Uses[x.Sel].(*types.Var); ok && v.Pkg() != nil && v.Pkg().Path() == "os" && (v.Name() == "Stdout" || v.Name() == "Stderr") {
					pass.Reportf(x.Pos(), "os.%s waits for the reader in a control path (%s)", v.Name(), r.path)
				}
			case *ast.SendStmt:
				if !free[x] {
					pass.Reportf(x.Pos(), "a send waits for its receiver in a control path (%s): use a select with a default", r.path)
				}
			}
		})
	}
	return nil, nil
}

// waits says what a function of another package may wait for, "" when for nothing.
func waits(f *types.Func) string {
	if f.Pkg() == nil {
		return ""
	}
	recv := ""
	if r := f.Signature().Recv(); r != nil {
		recv = typeName(r.Type())
	}
	name := f.Name()
	switch f.Pkg().Path() {
	case "os":
		if recv == "File" && name != "Fd" && name != "Name" || recv == "Root" && name != "Name" || recv == "" && touchesDisk(name) {
			return "a disk"
		}
		if recv == "Process" && name == "Wait" {
			return "a program"
		}
	case "github.com/google/renameio/v2", "headroom/internal/durable":
		return "a disk"
	case "os/exec":
		if recv == "Cmd" && slices.Contains([]string{"Run", "Wait", "Output", "CombinedOutput", "Start"}, name) {
			return "a program"
		}
	case "net":
		if strings.HasPrefix(name, "Dial") || strings.HasPrefix(name, "Lookup") || strings.HasPrefix(name, "Resolve") {
			return "a network"
		}
	case "net/http":
		if slices.Contains([]string{"Do", "Get", "Post", "PostForm", "Head", "RoundTrip"}, name) && recv != "Header" {
			return "a network"
		}
	case "time":
		if name == "Sleep" {
			return "a clock"
		}
	case "sync":
		if name == "Wait" {
			return "other goroutines"
		}
	case "log":
		return "the reader of a log"
	case "log/slog":
		if recv == "" && slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "DebugContext", "InfoContext", "WarnContext", "ErrorContext"}, name) {
			return "the reader of the default log"
		}
	}
	return ""
}

// touchesDisk reports whether a function of package os goes to a file system.
func touchesDisk(name string) bool {
	for _, p := range []string{
		"WriteFile", "ReadFile", "ReadDir", "Open", "Create", "Rename", "Remove", "Mkdir", "Stat", "Lstat", "Truncate",
		"Link", "Symlink", "Readlink", "Chmod", "Chown", "Lchown", "Chtimes", "CopyFS",
	} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// typeName is the name of a named type or of what a pointer to one points at.
func typeName(t types.Type) string {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// channels are the variables and fields that hold channels with room, and only those.
func channels(pass *analysis.Pass) map[types.Object]bool {
	roomy, tight := map[types.Object]bool{}, map[types.Object]bool{}
	note := func(to types.Object, value ast.Expr) {
		call, ok := ast.Unparen(value).(*ast.CallExpr)
		if to == nil || !ok || !builtin(pass.TypesInfo, call, "make") {
			return
		}
		if _, isChan := pass.TypesInfo.TypeOf(call).Underlying().(*types.Chan); isChan {
			roomy[to] = true
			tight[to] = tight[to] || len(call.Args) < 2
		}
	}
	for _, f := range written(pass) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.AssignStmt:
				if len(x.Lhs) == len(x.Rhs) {
					for i := range x.Lhs {
						note(holder(pass.TypesInfo, x.Lhs[i]), x.Rhs[i])
					}
				}
			case *ast.KeyValueExpr:
				note(holder(pass.TypesInfo, x.Key), x.Value)
			}
			return true
		})
	}
	for c := range tight {
		if tight[c] {
			delete(roomy, c)
		}
	}
	return roomy
}

// holder is the variable or field that an expression names.
func holder(info *types.Info, e ast.Expr) types.Object {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		if o := info.Defs[x]; o != nil {
			return o
		}
		return info.Uses[x]
	case *ast.SelectorExpr:
		return info.Uses[x.Sel]
	}
	return nil
}

// freeSends are the sends of a function that never wait.
func freeSends(info *types.Info, body ast.Node, roomy map[types.Object]bool) map[*ast.SendStmt]bool {
	free := map[*ast.SendStmt]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.SelectStmt:
			if yields(x) {
				for _, c := range x.Body.List {
					if s, ok := c.(*ast.CommClause).Comm.(*ast.SendStmt); ok {
						free[s] = true
					}
				}
			}
		case *ast.SendStmt:
			if to := holder(info, x.Chan); to != nil && roomy[to] {
				free[x] = true
			}
		}
		return true
	})
	return free
}

// yields reports whether a select has a default.
func yields(s *ast.SelectStmt) bool {
	return slices.ContainsFunc(s.Body.List, func(c ast.Stmt) bool { return c.(*ast.CommClause).Comm == nil })
}
