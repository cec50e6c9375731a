"""Accuracy of a logistic regression on bags of words, with which text classification is compared.

    python3 tests/bench/bag_of_words.py data/speakers/train.csv data/speakers/test.csv

Needs scikit-learn. Prints the accuracy with the regularization that 5-fold cross-validation on the
training texts chooses, and the best accuracy with any.
"""
import csv
import sys

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

STRENGTHS = [0.03, 0.1, 0.3, 1, 3]


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def main():
    train_texts, train_labels = read(sys.argv[1])
    test_texts, test_labels = read(sys.argv[2])
    for name, words in (("counts", CountVectorizer()), ("presence", CountVectorizer(binary=True))):
        train, test = words.fit_transform(train_texts), words.transform(test_texts)
        results = []
        for strength in STRENGTHS:
            model = LogisticRegression(C=strength, max_iter=500)
            validated = cross_val_score(model, train, train_labels, cv=5).mean()
            results.append((validated, model.fit(train, train_labels).score(test, test_labels), strength))
        chosen, best = max(results), max(result[1] for result in results)
        print(f"{name}: {len(train_labels)} and {len(test_labels)} texts, {len(words.vocabulary_)} words: "
              f"accuracy {chosen[1]:.4f} with C = {chosen[2]} by cross-validation, {best:.4f} at best")


if __name__ == "__main__":
    main()
