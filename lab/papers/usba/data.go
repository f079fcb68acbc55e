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
	// r and match are what the survey of the papers derived: the ratio, and the largest deviation from the printed model, in percent.
	r, match float64
	// error is the claimed bound of the relative error, mean that of the printed column; low and high are the claimed mean error of the
	// predictions. All are in percent.
	error, mean, low, high float64
	// monotone: the speed-up of a fixed size falls with m from 3 on.
	monotone bool
	// modelling is part (a), prediction part (b), from sizes up to 64.
	modelling, prediction usba.Model
}

func benchmarks() []benchmark {
	model := func(alpha, beta, gamma, eps, theta float64) usba.Model {
		return usba.Model{Alpha: alpha, Beta: beta, Gamma: gamma, Eps: eps, Theta: theta}
	}
	return []benchmark{
		{"bayes", 0.557, 4.7, 15, 8.1, 6, 12, false, model(1.58, 0.051, -0.006, 0.044, 19.09), model(1.555, 0.031, -1.91e-6, 0.050, 15.367)},
		{"rf", 0.825, 5.6, 15, 4.9, 6, 12, false, model(1.938, 0.074, -0.009, 0.04389, 18.983), model(2.194, 0.085, -0.021, 0.049, 15.612)},
		{"svm", 2.279, 6.0, 15, 5.8, 6, 12, true, model(0.807, 0.14, 0, 0.037, 19.905), model(0.886, 0.137, 0, 0.037, 19.783)},
		{"nweight", 0.792, 2.4, 21, 8.2, 18.5, 19.5, false, model(2.505, 0.106, -0.022, 0.04, 19.516), model(2.067, 0.09, -1.09e-6, 0.040, 19.044)},
	}
}
