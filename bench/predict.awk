# Lines of: part subject pass ratio strategy predicted measured p10 p90 predicted-compute compute (milliseconds).
# Prints them with their errors, then what is made of them; bench/predict.sh says what is wanted.
function magnitude(x) { return x < 0 ? -x : x }

function sort(values, count,    i, j, v)
{
    for (i = 2; i <= count; i++) {
        v = values[i]
        for (j = i - 1; j >= 1 && values[j] > v; j--)
            values[j + 1] = values[j]
        values[j + 1] = v
    }
}

# As metrics.md has percentiles: linear between neighbours.
function percentile(values, count, part,    at, low)
{
    at = 1 + part * (count - 1)
    low = int(at)
    if (low >= count)
        return values[count]
    return values[low] + (at - low) * (values[low + 1] - values[low])
}

# none, unless another one is predicted to be faster by more than 1 %.
function chosen(g,    i, best)
{
    for (i = 1; i <= members[g]; i++)
        if (best == "" || predicted[g, i] < predicted[g, best])
            best = i
    return predicted[g, best] < 0.99 * predicted[g, none[g]] ? best : none[g]
}

function fastest(g,    i, best)
{
    for (i = 1; i <= members[g]; i++)
        if (best == "" || measured[g, i] < measured[g, best])
            best = i
    return best
}

{
    g = $1 " " $2 " " $3 " " $4
    if (!(g in members))
        order[++groups] = g
    m = ++members[g]
    name[g, m] = $5
    predicted[g, m] = $6
    measured[g, m] = $7
    if ($5 == "none")
        none[g] = m
    error = 100 * ($6 / $7 - 1)
    errors[++count] = magnitude(error)
    of_part[$1, ++part_count[$1]] = magnitude(error)
    printf "%-10s %-10s %-15s %5s  %-8s predicted %9.3f  measured %9.3f (%.3f-%.3f)  error %+6.1f %%\n", $1, $2, $3, $4, $5,
        $6, $7, $8, $9, error
}

END {
    if (!count) {
        print "nothing was measured"
        exit 1
    }
    print ""
    for (i = 1; i <= groups; i++) {
        g = order[i]
        c = chosen(g)
        f = fastest(g)
        regret = 100 * (measured[g, c] / measured[g, f] - 1)
        good += regret <= 2
        worst = regret > worst ? regret : worst
        sum += regret
        if (regret > 2)
            printf "%-42s chosen %-8s %9.3f ms, best %-8s %9.3f ms: regret %.1f %%\n", g, name[g, c], measured[g, c],
                name[g, f], measured[g, f], regret
    }
    print ""
    for (p in part_count) {
        for (i = 1; i <= part_count[p]; i++)
            some[i] = of_part[p, i]
        sort(some, part_count[p])
        printf "%-10s %4d predictions: median error %.2f %%, 95th percentile %.2f %%, worst %.1f %%\n", p, part_count[p],
            percentile(some, part_count[p], 0.5), percentile(some, part_count[p], 0.95), some[part_count[p]]
    }
    sort(errors, count)
    median = percentile(errors, count, 0.5)
    high = percentile(errors, count, 0.95)
    printf "%-10s %4d predictions: median error %.2f %% (wanted: 3), 95th percentile %.2f %% (8), worst %.1f %%\n", "all",
        count, median, high, errors[count]
    printf "%d of %d choices are the best or within 2 %% of it: %.1f %% (wanted: 95); regret %.2f %% on average, %.1f %% at worst (5)\n",
        good, groups, 100 * good / groups, sum / groups, worst
    exit median > 3 || high > 8 || good < 0.95 * groups || worst > 5
}
