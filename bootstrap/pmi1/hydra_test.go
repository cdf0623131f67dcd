package pmi1

func asRankOfHydra() {}
