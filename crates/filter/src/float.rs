//! The functions of `f64` that `core` lacks, from libm, with the names that they have in `std`.

/// Transcendental functions and rounding without `std`.
pub(crate) trait Float {
    fn cos(self) -> Self;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn exp_m1(self) -> Self;
    fn floor(self) -> Self;
    fn fract(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn log2(self) -> Self;
    fn powf(self, power: Self) -> Self;
    fn powi(self, power: i32) -> Self;
    fn round(self) -> Self;
    fn sin(self) -> Self;
    fn sqrt(self) -> Self;
}

impl Float for f64 {
    fn cos(self) -> Self {
        libm::cos(self)
    }

    fn exp(self) -> Self {
        libm::exp(self)
    }

    fn exp2(self) -> Self {
        libm::exp2(self)
    }

    fn exp_m1(self) -> Self {
        libm::expm1(self)
    }

    fn floor(self) -> Self {
        libm::floor(self)
    }

    fn fract(self) -> Self {
        self - libm::trunc(self)
    }

    fn ln(self) -> Self {
        libm::log(self)
    }

    fn ln_1p(self) -> Self {
        libm::log1p(self)
    }

    fn log2(self) -> Self {
        libm::log2(self)
    }

    fn powf(self, power: Self) -> Self {
        libm::pow(self, power)
    }

    fn powi(self, power: i32) -> Self {
        libm::pow(self, Self::from(power))
    }

    fn round(self) -> Self {
        libm::round(self)
    }

    fn sin(self) -> Self {
        libm::sin(self)
    }

    fn sqrt(self) -> Self {
        libm::sqrt(self)
    }
}
