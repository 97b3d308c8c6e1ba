"""Reference values from SciPy and scikit-learn for the tests of `learn`. Writes fixtures/learn/peers.json.

Run with a Python that has both packages: `python bench/vectors.py`. The seed is fixed; values are rounded to the precision
that the tests compare.
"""

import json
from pathlib import Path

import numpy
from scipy.signal import welch
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score

ROOT = Path(__file__).resolve().parent.parent


def rounded(values, digits=12):
    return [float(f"{value:.{digits}g}") for value in values]


def main():
    random = numpy.random.default_rng(7)
    spectra = []
    for length, segment, overlap, rate in [(300, 100, 50, 1.0), (257, 64, 16, 10.0), (101, 51, 25, 0.5), (64, 64, 0, 1.0)]:
        time = numpy.arange(length)
        values = (0.3 + 0.2 * numpy.sin(2 * numpy.pi * 0.07 * time) + 0.05 * random.standard_normal(length)).round(6).astype(numpy.float32)
        _, density = welch(values.astype(float), fs=rate, nperseg=segment, noverlap=overlap)
        spectra.append({"values": [round(float(value), 6) for value in values], "segment": segment, "overlap": overlap, "sample_rate": rate, "density": rounded(density)})
    centres = random.random((4, 6))
    groups = random.integers(0, 4, 150)
    points = (centres[groups] + 0.15 * random.standard_normal((150, 6))).round(5)
    pca = PCA(n_components=3).fit(points)
    vectors = {
        "welch": spectra,
        "points": points.tolist(),
        "groups": groups.tolist(),
        "silhouette": silhouette_score(points, groups),
        "pca": {
            "explained_variance": rounded(pca.explained_variance_),
            "explained_share": rounded(pca.explained_variance_ratio_),
            "transformed": [rounded(row, 9) for row in pca.transform(points)],
        },
    }
    path = ROOT / "fixtures/learn/peers.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(vectors) + "\n")


if __name__ == "__main__":
    main()
