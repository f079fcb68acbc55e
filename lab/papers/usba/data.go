package usba

import "headroom/jobs/scaling/usba"

// row is a row of Table 3.3: what was measured, and what the paper's model gave, in the order of benchmarks.
type row struct {
	n, m               int
	measured, modelled [4]float64
}

func table33() []row {
	return []row{
		{1, 1, [4]float64{1.0, 1.0, 1.0, 1.0}, [4]float64{1.0, 1.0, 1.0, 1.0}},
		{8, 2, [4]float64{2.2, 1.8, 2.3, 2.1}, [4]float64{2.3, 1.9, 2.2, 1.7}},
		{8, 4, [4]float64{3.3, 2.2, 2.4, 2.7}, [4]float64{2.9, 2.5, 2.2, 2.3}},
		{8, 8, [4]float64{4.2, 2.9, 2.2, 3.3}, [4]float64{4.0, 3.3, 2.0, 3.3}},
		{64, 32, [4]float64{17.0, 12.3, 7.3, 10.0}, [4]float64{15.3, 12.0, 7.0, 11.0}},
		{64, 64, [4]float64{15.8, 10.0, 4.6, 8.7}, [4]float64{13.4, 9.9, 4.9, 8.5}},
		{96, 48, [4]float64{23.3, 16.0, 8.0, 14.2}, [4]float64{19.9, 15.2, 8.3, 13.9}},
		{96, 96, [4]float64{18.1, 11.4, 5.3, 8.6}, [4]float64{15.4, 11.2, 5.4, 9.3}},
		{128, 32, [4]float64{23.6, 21.8, 13.5, 17.2}, [4]float64{26.2, 21.0, 13.1, 20.7}},
		{128, 64, [4]float64{25.1, 18.7, 8.8, 18.3}, [4]float64{23.4, 17.7, 9.2, 16.1}},
		{128, 128, [4]float64{16.7, 12.8, 6.1, 10.3}, [4]float64{16.7, 12.0, 5.7, 9.8}},
		{192, 48, [4]float64{34.0, 28.9, 16.7, 27.2}, [4]float64{35.9, 28.4, 15.8, 29.3}},
		{192, 96, [4]float64{31.6, 22.0, 9.6, 21.5}, [4]float64{28.5, 21.2, 10.4, 19.2}},
		{192, 192, [4]float64{18.4, 13.5, 7.2, 10.5}, [4]float64{18.2, 13.0, 6.1, 10.4}},
		{256, 64, [4]float64{38.8, 33.9, 18.5, 32.6}, [4]float64{44.2, 34.7, 17.7, 37.0}},
		{256, 128, [4]float64{32.1, 21.6, 10.4, 22.7}, [4]float64{32.0, 23.6, 11.1, 21.3}},
		{256, 256, [4]float64{16.8, 14.0, 5.9, 10.0}, [4]float64{19.1, 13.5, 6.3, 10.7}},
	}
}

// benchmark has Table 3.1's parameters, but for r, and what is claimed of it.
type benchmark struct {
	name string
	// modelling is part (a), prediction part (b), from sizes up to 64.
	modelling, prediction usba.Model
	// r and match are what the survey of the papers derived: the ratio, and the largest deviation from the printed model, in percent.
	r, match float64
	// error is the claimed bound of the relative error, mean that of the printed column, both in percent.
	error, mean float64
	// predicted is the claimed mean error of the predictions, from low to high, in percent.
	low, high float64
	// monotone: the speed-up of a fixed size falls with m from 3 on.
	monotone bool
}

func benchmarks() []benchmark {
	return []benchmark{
		{
			name: "bayes", r: 0.557, match: 4.7, error: 15, mean: 8.1, low: 6, high: 12,
			modelling:  usba.Model{Alpha: 1.58, Beta: 0.051, Gamma: -0.006, Eps: 0.044, Theta: 19.09},
			prediction: usba.Model{Alpha: 1.555, Beta: 0.031, Gamma: -1.91e-6, Eps: 0.050, Theta: 15.367},
		},
		{
			name: "rf", r: 0.825, match: 5.6, error: 15, mean: 4.9, low: 6, high: 12,
			modelling:  usba.Model{Alpha: 1.938, Beta: 0.074, Gamma: -0.009, Eps: 0.04389, Theta: 18.983},
			prediction: usba.Model{Alpha: 2.194, Beta: 0.085, Gamma: -0.021, Eps: 0.049, Theta: 15.612},
		},
		{
			name: "svm", r: 2.279, match: 6.0, error: 15, mean: 5.8, low: 6, high: 12, monotone: true,
			modelling:  usba.Model{Alpha: 0.807, Beta: 0.14, Eps: 0.037, Theta: 19.905},
			prediction: usba.Model{Alpha: 0.886, Beta: 0.137, Eps: 0.037, Theta: 19.783},
		},
		{
			name: "nweight", r: 0.792, match: 2.4, error: 21, mean: 8.2, low: 18.5, high: 19.5,
			modelling:  usba.Model{Alpha: 2.505, Beta: 0.106, Gamma: -0.022, Eps: 0.04, Theta: 19.516},
			prediction: usba.Model{Alpha: 2.067, Beta: 0.09, Gamma: -1.09e-6, Eps: 0.040, Theta: 19.044},
		},
	}
}
