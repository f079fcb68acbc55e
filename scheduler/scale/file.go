package scale

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"headroom/jobs/scaling"
)

// pointsMost bounds the points of a file, and its predictions.
const pointsMost = 10_000

// Input has points to fit a model to, or the parameters of a model, and what to predict.
type Input struct {
	Model      string             `json:"model"`
	Points     []filePoint        `json:"points"`
	Fixed      map[string]float64 `json:"fixed"`
	Parameters map[string]given   `json:"parameters"`
	Predict    []filePoint        `json:"predict"`
}

type filePoint struct {
	N       *int     `json:"n"`
	M       *int     `json:"m"`
	Speedup *float64 `json:"speedup"`
}

// given is a parameter: a number, or an object with a value, as a fit prints it.
type given float64

// UnmarshalJSON reads either form.
func (g *given) UnmarshalJSON(text []byte) error {
	var x float64
	if json.Unmarshal(text, &x) == nil {
		*g = given(x)
		return nil
	}
	var whole struct{ Value *float64 }
	if err := json.Unmarshal(text, &whole); err != nil {
		return errors.New("a parameter must be a number or an object with a value")
	}
	if whole.Value == nil {
		return errors.New("a parameter has no value")
	}
	*g = given(*whole.Value)
	return nil
}

// Answer is what is printed. What does not exist is null; what only logs have is left out for files.
type Answer struct {
	Model        string               `json:"model,omitempty"`
	Measurements []measurement        `json:"measurements,omitempty"`
	Parameters   map[string]parameter `json:"parameters"`
	Type         *string              `json:"type"`
	Peak         *peak                `json:"peak"`
	RMSE         float64              `json:"rmse"`
	Predict      []prediction         `json:"predict"`
	Factors      *factors             `json:"factors,omitempty"`
	// NoFactors says why there are none.
	NoFactors string  `json:"no_factors,omitempty"`
	Advice    *advice `json:"advice,omitempty"`
}

type parameter struct {
	Value float64  `json:"value"`
	Low   float64  `json:"low"`
	High  float64  `json:"high"`
	P     *float64 `json:"p"`
}

// peak is a degree and its speed-up. Of usba N is the problem size and M the degree.
type peak struct {
	N       int     `json:"n"`
	M       *int    `json:"m,omitempty"`
	Speedup float64 `json:"speedup"`
}

type prediction struct {
	N       int     `json:"n"`
	M       *int    `json:"m"`
	Speedup float64 `json:"speedup"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
}

// Solve fits the model of an input, or takes its parameters, and predicts. Its errors are mistakes in the input.
func Solve(in *Input) (*Answer, error) {
	c, err := in.curve()
	if err != nil {
		return nil, err
	}
	out, err := predictions(c, in.Predict)
	if err != nil {
		return nil, err
	}
	return answerOf(c, out), nil
}

func (in *Input) curve() (*scaling.Curve, error) {
	if in.Parameters != nil {
		parameters := map[string]float64{}
		for key, x := range in.Parameters {
			parameters[key] = float64(x)
		}
		c, err := scaling.Given(in.Model, parameters)
		return c, plain(err)
	}
	if in.Points == nil || len(in.Points) > pointsMost {
		return nil, fmt.Errorf("points are missing, or more than %d", pointsMost)
	}
	var ps []scaling.Point
	for i := range in.Points {
		p, err := in.Points[i].point("points", i)
		if err != nil {
			return nil, err
		}
		if in.Points[i].Speedup == nil {
			return nil, fmt.Errorf("points[%d]: speedup is missing", i)
		}
		p.Speedup = *in.Points[i].Speedup
		ps = append(ps, p)
	}
	c, err := scaling.FitHeld(in.Model, ps, in.Fixed)
	return c, plain(err)
}

// plain is an error without the names of packages.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(reason(err))
}

// point checks the numbers of a point but for its speed-up.
func (p *filePoint) point(list string, i int) (scaling.Point, error) {
	var at [2]int
	for k, x := range []*int{p.N, p.M} {
		switch {
		case x == nil && k == 0:
			return scaling.Point{}, fmt.Errorf("%s[%d]: n is missing", list, i)
		case x != nil && (*x < 1 || *x > scaling.DegreeMost):
			return scaling.Point{}, fmt.Errorf("%s[%d]: %c is %d: must be from 1 to %d", list, i, "nm"[k], *x, scaling.DegreeMost)
		case x != nil:
			at[k] = *x
		}
	}
	return scaling.Point{N: at[0], M: at[1]}, nil
}

// predictions are the speed-ups that a file asks for.
func predictions(c *scaling.Curve, asked []filePoint) ([]prediction, error) {
	if len(asked) > pointsMost {
		return nil, fmt.Errorf("%d predictions; at most %d", len(asked), pointsMost)
	}
	out := []prediction{}
	for i := range asked {
		p, err := asked[i].point("predict", i)
		if err != nil {
			return nil, err
		}
		if asked[i].Speedup != nil {
			return nil, fmt.Errorf("predict[%d]: speedup is what is predicted; leave it out", i)
		}
		if p.M == 0 && c.NeedsM() {
			return nil, fmt.Errorf("predict[%d]: m is missing, the parallel degree", i)
		}
		s, low, high := c.Predict(p.N, p.M)
		if math.IsNaN(s) || math.IsInf(s, 0) || math.IsNaN(low) || math.IsNaN(high) || math.IsInf(high, 0) {
			return nil, fmt.Errorf("predict[%d]: the curve has no value there: its parameters give the job no time; ask nearer to what was measured", i)
		}
		out = append(out, prediction{N: p.N, M: asked[i].M, Speedup: s, Low: low, High: high})
	}
	return out, nil
}

// answerOf is a curve as it is printed.
func answerOf(c *scaling.Curve, out []prediction) *Answer {
	a := &Answer{Parameters: map[string]parameter{}, RMSE: c.RMSE, Predict: out}
	if out == nil {
		a.Predict = []prediction{}
	}
	for name, p := range c.Parameters {
		x := parameter{Value: p.Value, Low: p.Low, High: p.High}
		if !math.IsNaN(p.P) {
			x.P = &p.P
		}
		a.Parameters[name] = x
	}
	if c.Type != "" {
		a.Type = &c.Type
	}
	if n, s, ok := c.Peak(0); ok {
		a.Peak = &peak{N: n, Speedup: s}
		if c.Model == scaling.USBA {
			a.Peak = &peak{N: c.Size(), M: &n, Speedup: s}
		}
	}
	return a
}

// reason is an error without the names of packages.
func reason(err error) string {
	text := err.Error()
	for _, prefix := range []string{"scaling: ", "ipso: ", "usba: ", "bad number: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}
