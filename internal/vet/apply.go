package vet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Apply returns the analyzer of the replicated state machine: functions marked
// //headroom:apply and what they reach in their package.
//
// They read no clock (package time but for its types), no chance (math/rand,
// crypto/rand), no machine (os, net, runtime), and start or select between no
// goroutines. A loop over a map, or over maps.Keys, Values or All, does only what comes
// out the same in every order; [order] lists that.
func Apply() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "apply",
		Doc:  "report what makes servers differ that apply the same log",
		Run:  apply,
	}
}

func apply(pass *analysis.Pass) (any, error) {
	info := pass.TypesInfo
	for _, r := range reach(pass, "apply") {
		ast.Inspect(r.decl.Body, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.SelectorExpr:
				if o := info.Uses[x.Sel]; o != nil && differs(o) {
					pass.Reportf(x.Pos(), "%s.%s differs between servers (%s)", o.Pkg().Name(), o.Name(), r.path)
				}
			case *ast.GoStmt:
				pass.Reportf(x.Pos(), "a goroutine ends in no fixed order (%s)", r.path)
			case *ast.SelectStmt:
				pass.Reportf(x.Pos(), "a select chooses by chance (%s)", r.path)
			case *ast.RangeStmt:
				if unordered(info, x.X) {
					o := order{info: info, body: r.decl.Body, loop: x}
					if why := o.judge(); why != nil {
						pass.Reportf(why.Pos(), "this depends on the order of the map in the loop (%s): sort first", r.path)
					}
				}
			case *ast.CallExpr:
				if f := called(info, x); f != nil && f.FullName() == "slices.Collect" && unordered(info, x.Args[0]) && !collectSorted(info, r.decl.Body, x) {
					pass.Reportf(x.Pos(), "this is in the order of a map (%s): sort it", r.path)
				}
			}
			return true
		})
	}
	return nil, nil
}

// differs reports whether a name of another package is a clock, chance or machine.
func differs(o types.Object) bool {
	if o.Pkg() == nil {
		return false
	}
	switch path := o.Pkg().Path(); path {
	case "time":
		return slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc", "Local"}, o.Name()) &&
			o.Parent() == o.Pkg().Scope()
	case "math/rand", "math/rand/v2", "crypto/rand", "os", "net", "runtime", "hash/maphash":
		return true
	}
	return false
}

// unordered reports whether ranging over e gives another order each time.
func unordered(info *types.Info, e ast.Expr) bool {
	if t := info.TypeOf(e); t != nil {
		if _, ok := t.Underlying().(*types.Map); ok {
			return true
		}
	}
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	f := called(info, call)
	return f != nil && slices.Contains([]string{"maps.Keys", "maps.Values", "maps.All"}, f.FullName())
}

// collectSorted reports whether what slices.Collect returns is put into a variable that
// is sorted in the same function, or goes to a function of slices that looks for the
// least or greatest.
func collectSorted(info *types.Info, body ast.Node, collect *ast.CallExpr) bool {
	sorted := false
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 && call.Args[0] == collect {
			if f := called(info, call); f != nil {
				sorted = sorted || slices.Contains([]string{"slices.Min", "slices.Max", "slices.MinFunc", "slices.MaxFunc"}, f.FullName())
			}
		}
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Rhs) == 1 && a.Rhs[0] == collect {
			o := order{info: info, body: body, loop: a}
			sorted = sorted || o.sorted(root(info, a.Lhs[0]))
		}
		return true
	})
	return sorted
}

// order judges one loop over a map. The same result in every order have: variables of
// one turn; sums, logical and bit operations, max and min of anything but floats; the
// slot of the loop's own key, also through a call that is given a map and the key;
// deletions; what is appended to a slice that is sorted later in the function; setting a
// variable to one constant; leaving with an error, or always with the same values, which
// no turn has changed.
type order struct {
	info *types.Info
	body ast.Node
	loop ast.Node

	key   types.Object
	exits []string
	set   map[types.Object]string // constants that outer variables are set to
}

// judge returns the first node that depends on the order, nil when none does.
func (o *order) judge() ast.Node {
	loop := o.loop.(*ast.RangeStmt)
	o.set = map[types.Object]string{}
	if loop.Key != nil {
		o.key = root(o.info, loop.Key)
		if loop.Tok == token.ASSIGN {
			return loop.Key // the last key stays behind
		}
	}
	return o.list(loop.Body.List)
}

func (o *order) list(all []ast.Stmt) ast.Node {
	if n := len(all); n > 0 && leaves(all[n-1]) && !o.mentions(all) {
		return o.exit(all[n-1], all)
	}
	for _, s := range all {
		if why := o.stmt(s); why != nil {
			return why
		}
	}
	return nil
}

func (o *order) stmt(s ast.Stmt) ast.Node {
	switch s := s.(type) {
	case nil, *ast.EmptyStmt, *ast.DeclStmt:
		return nil
	case *ast.BlockStmt:
		return o.list(s.List)
	case *ast.IfStmt:
		return first(o.stmt(s.Init), o.stmt(s.Body), o.stmt(s.Else))
	case *ast.ForStmt:
		return first(o.stmt(s.Init), o.stmt(s.Post), o.stmt(s.Body))
	case *ast.RangeStmt:
		return o.stmt(s.Body)
	case *ast.SwitchStmt:
		return first(o.stmt(s.Init), o.stmt(s.Body))
	case *ast.TypeSwitchStmt:
		return first(o.stmt(s.Init), o.stmt(s.Body))
	case *ast.CaseClause:
		return o.list(s.Body)
	case *ast.IncDecStmt:
		if o.isFloat(s.X) {
			return s
		}
		return nil
	case *ast.AssignStmt:
		return o.assign(s)
	case *ast.ExprStmt:
		return o.call(s)
	case *ast.ReturnStmt:
		return o.exit(s, []ast.Stmt{s})
	case *ast.BranchStmt:
		if s.Tok == token.CONTINUE {
			return nil
		}
		if s.Tok == token.BREAK && s.Label == nil && o.innermost(s) != o.loop {
			return nil
		}
	}
	return s
}

func first(all ...ast.Node) ast.Node {
	for _, n := range all {
		if n != nil {
			return n
		}
	}
	return nil
}

// innermost is the loop or switch that a break leaves.
func (o *order) innermost(b *ast.BranchStmt) ast.Node {
	var in ast.Node
	ast.Inspect(o.loop, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt:
			if n.Pos() <= b.Pos() && b.End() <= n.End() {
				in = n
			}
		}
		return true
	})
	return in
}

// leaves reports whether a statement ends the function or the loop.
func leaves(s ast.Stmt) bool {
	if b, ok := s.(*ast.BranchStmt); ok {
		return b.Tok == token.BREAK && b.Label == nil
	}
	_, ok := s.(*ast.ReturnStmt)
	return ok
}

// exit judges how the loop is left: with an error, or always alike.
func (o *order) exit(s ast.Stmt, block []ast.Stmt) ast.Node {
	r, ok := s.(*ast.ReturnStmt)
	if b, isBreak := s.(*ast.BranchStmt); isBreak && o.innermost(b) != o.loop {
		return nil
	}
	if ok && len(r.Results) > 0 {
		last := r.Results[len(r.Results)-1]
		if t := o.info.TypeOf(last); t != nil && isError(t) && !o.info.Types[last].IsNil() && !o.mentionsExprs(r.Results[:len(r.Results)-1]) {
			return nil
		}
	}
	if o.mentions(block) {
		return s
	}
	text := o.text(block)
	if len(o.exits) > 0 && o.exits[0] != text {
		return s
	}
	o.exits = append(o.exits, text)
	return nil
}

func isError(t types.Type) bool {
	return types.Implements(t, types.Universe.Lookup("error").Type().Underlying().(*types.Interface))
}

// text compares statements: positions of names, which stand for the same.
func (o *order) text(block []ast.Stmt) string {
	var b strings.Builder
	for _, s := range block {
		ast.Inspect(s, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.Ident:
				b.WriteString(x.Name + " ")
			case *ast.BasicLit:
				b.WriteString(x.Value + " ")
			case *ast.BinaryExpr:
				b.WriteString(x.Op.String() + " ")
			}
			return true
		})
	}
	return b.String()
}

// mentions reports whether statements use what differs between turns: variables that
// are declared in the loop or changed by it.
func (o *order) mentions(all []ast.Stmt) bool {
	return slices.ContainsFunc(all, func(s ast.Stmt) bool { return o.uses(s) })
}

func (o *order) mentionsExprs(all []ast.Expr) bool {
	return slices.ContainsFunc(all, func(e ast.Expr) bool { return o.uses(e) })
}

func (o *order) uses(n ast.Node) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		// What the block itself declares is its own.
		if v, ok := o.info.Uses[id].(*types.Var); ok && !v.IsField() && (o.local(v) || o.changed(v)) {
			found = true
		}
		return true
	})
	return found
}

// changed reports whether the loop assigns to a variable of its surroundings.
func (o *order) changed(v types.Object) bool {
	found := false
	ast.Inspect(o.loop.(*ast.RangeStmt).Body, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.AssignStmt:
			for _, l := range x.Lhs {
				found = found || root(o.info, l) == v
			}
		case *ast.IncDecStmt:
			found = found || root(o.info, x.X) == v
		}
		return true
	})
	return found
}

// local reports whether a variable is declared by the loop or in it.
func (o *order) local(v types.Object) bool {
	return v != nil && v.Pos() >= o.loop.Pos() && v.Pos() < o.loop.End()
}

func (o *order) call(s *ast.ExprStmt) ast.Node {
	call, ok := ast.Unparen(s.X).(*ast.CallExpr)
	if !ok {
		return s
	}
	if builtin(o.info, call, "delete") || builtin(o.info, call, "panic") || o.keyed(call) {
		return nil
	}
	if f := called(o.info, call); f != nil && sorts(f) && len(call.Args) > 0 && o.local(root(o.info, call.Args[0])) {
		return nil
	}
	return s
}

// keyed reports whether a call is given a map and the loop's key: it changes that slot.
func (o *order) keyed(call *ast.CallExpr) bool {
	isMap, isKey := false, false
	for _, a := range call.Args {
		if t := o.info.TypeOf(a); t != nil {
			_, m := t.Underlying().(*types.Map)
			isMap = isMap || m
		}
		isKey = isKey || o.isKey(a)
	}
	return isMap && isKey
}

func (o *order) isKey(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && o.key != nil && o.info.Uses[id] == o.key
}

func (o *order) assign(s *ast.AssignStmt) ast.Node {
	if s.Tok == token.DEFINE {
		return nil
	}
	for i, l := range s.Lhs {
		var r ast.Expr
		if len(s.Lhs) == len(s.Rhs) {
			r = s.Rhs[i]
		}
		if !o.settled(s.Tok, l, r) {
			return s
		}
	}
	return nil
}

// settled reports whether an assignment of r to l, by =, += and so on, comes out the
// same in every order.
func (o *order) settled(tok token.Token, l, r ast.Expr) bool {
	to := root(o.info, l)
	if isBlank(l) || o.ownSlot(l) || o.local(to) && o.valueOnly(l) {
		return true
	}
	switch tok {
	case token.ADD_ASSIGN, token.SUB_ASSIGN, token.MUL_ASSIGN, token.OR_ASSIGN, token.AND_ASSIGN, token.XOR_ASSIGN, token.AND_NOT_ASSIGN:
		return !o.isFloat(l) && !o.isString(l)
	case token.ASSIGN:
	default:
		return false
	}
	switch r := unparen(r).(type) {
	case *ast.BinaryExpr:
		if slices.Contains([]token.Token{token.ADD, token.SUB, token.MUL, token.OR, token.AND, token.LOR, token.LAND, token.XOR}, r.Op) &&
			types.ExprString(r.X) == types.ExprString(l) && !o.isFloat(l) && !o.isString(l) {
			return true
		}
	case *ast.CallExpr:
		switch {
		case builtin(o.info, r, "max"), builtin(o.info, r, "min"):
			if slices.ContainsFunc(r.Args, func(a ast.Expr) bool { return types.ExprString(a) == types.ExprString(l) }) {
				return true
			}
		case builtin(o.info, r, "append"):
			if types.ExprString(r.Args[0]) == types.ExprString(l) && o.sorted(to) {
				return true
			}
		}
	}
	v, known := "", false
	if r != nil {
		if c := o.info.Types[r]; c.Value != nil {
			v, known = c.Value.ExactString(), true
		} else if c.IsNil() {
			v, known = "nil", true
		}
	}
	if _, ok := l.(*ast.Ident); !known || !ok {
		return false
	}
	if was, ok := o.set[to]; ok && was != v {
		return false
	}
	o.set[to] = v
	return true
}

func unparen(e ast.Expr) ast.Expr {
	if e == nil {
		return nil
	}
	return ast.Unparen(e)
}

// ownSlot reports whether l is m[key], or something in it, with the loop's own key.
func (o *order) ownSlot(l ast.Expr) bool {
	for {
		switch x := ast.Unparen(l).(type) {
		case *ast.IndexExpr:
			if o.isKey(x.Index) {
				return true
			}
			l = x.X
		case *ast.SelectorExpr:
			l = x.X
		default:
			return false
		}
	}
}

// valueOnly reports whether l changes a variable itself and nothing that it points at.
func (o *order) valueOnly(l ast.Expr) bool {
	for {
		switch x := ast.Unparen(l).(type) {
		case *ast.Ident:
			return true
		case *ast.SelectorExpr:
			if _, ok := o.info.TypeOf(x.X).Underlying().(*types.Pointer); ok {
				return false
			}
			l = x.X
		case *ast.IndexExpr:
			if _, ok := o.info.TypeOf(x.X).Underlying().(*types.Array); !ok {
				return false
			}
			l = x.X
		default:
			return false
		}
	}
}

func (o *order) isFloat(e ast.Expr) bool  { return o.is(e, types.IsFloat) }
func (o *order) isString(e ast.Expr) bool { return o.is(e, types.IsString) }

func (o *order) is(e ast.Expr, kind types.BasicInfo) bool {
	b, ok := o.info.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&kind != 0
}

// sorted reports whether the function sorts a variable after the loop, or each of the
// elements that it holds.
func (o *order) sorted(v types.Object) bool {
	names := map[types.Object]bool{v: v != nil}
	found := false
	ast.Inspect(o.body, func(n ast.Node) bool {
		if n == nil || n.End() <= o.loop.End() {
			return true
		}
		switch x := n.(type) {
		case *ast.RangeStmt:
			if x.Pos() > o.loop.End() && x.Value != nil && names[root(o.info, x.X)] {
				names[root(o.info, x.Value)] = true
			}
		case *ast.CallExpr:
			if f := called(o.info, x); f == nil || x.Pos() < o.loop.End() || !sorts(f) {
				return true
			}
			for _, a := range x.Args {
				arg := root(o.info, a)
				if c, ok := ast.Unparen(a).(*ast.CallExpr); ok && len(c.Args) == 1 { // slices.Values(x), sort.StringSlice(x)
					arg = root(o.info, c.Args[0])
				}
				found = found || arg != nil && names[arg]
			}
		}
		return true
	})
	return found
}

// sorts reports whether a function puts its argument in order.
func sorts(f *types.Func) bool {
	return f.Pkg() != nil && (f.Pkg().Path() == "slices" && strings.HasPrefix(f.Name(), "Sort") || f.Pkg().Path() == "sort")
}
