"""Scientific names and their authors: a table that was written by hand, from botany and not from the code."""

import pytest
from hypothesis import given, strategies as st

from shortlist._names import split_author

# the name | its author
SPLIT = """
Lactuca virosa                        | L.
Quercus robur                         | L.
Cirsium arvense                       | (L.) Scop.
Picea abies                           | (L.) H.Karst.
Pelargonium capitatum                 | (L.) L'Hér.
Pelargonium zonale                    | (L.) L’Hér.
Eucalyptus globulus                   | Labill.
Peperomia obtusifolia                 | (L.) A. Dietr.
Barbarea vulgaris                     | W. T. Aiton
Nephrolepis cordifolia                | (L.) C. Presl
Alocasia macrorrhizos                 | (L.) G.Don
Sedum dasyphyllum                     | L.
Arbutus unedo                         | L.
Cereus jamacaru                       | DC.
Ribes sanguineum                      | Pursh
Acacia dealbata                       | Link
Hypoestes phyllostachya               | Baker
Haworthia cooperi                     | Baker
Aloe dichotoma                        | Masson
Anemone hupehensis                    | (Lemoine) Lemoine
Kniphofia uvaria                      | (L.) Oken
Aeschynanthus radicans                | Jack
Geranium sylvaticum                   | L.
Taraxacum officinale                  | F.H.Wigg.
Fagus sylvatica                       | L.
Pinus radiata                         | D.Don
Sequoia sempervirens                  | (D.Don) Endl.
Metasequoia glyptostroboides          | Hu & W.C.Cheng
Anemone blanda                        | Schott & Kotschy
Echeveria setosa                      | Rose & Purpus
Kalanchoe daigremontiana              | Raym.-Hamet & H.Perrier
Tradescantia pallida                  | (Rose) D.R.Hunt
Goeppertia makoyana                   | (E.Morren) Borchs. & S.Suárez
Dracaena fragrans                     | (L.) Ker Gawl.
Silene vulgaris                       | (Moench) Garcke
Gunnera tinctoria                     | (Molina) Mirb.
Cymbalaria muralis                    | P. Gaertn., B. Mey. & Schreb.
Rumex alpestris                       | (Scop.) Á. Löve
Saxifraga callosa                     | Sm.
Hieracium lachenalii                  | Suter
Aloe vera                             | (L.) Burm.f.
Aloe maculata                         | (L.) Burm. f.
Passiflora edulis                     | Sims
Magnolia stellata                     | (Siebold & Zucc.) Maxim.
Rhododendron arboreum                 | Sm.
Meconopsis betonicifolia              | Franch.
Primula sikkimensis                   | Hook. f.
Primula denticulata                   | Hook.f. et Thomson
Iris reticulata                       | M. Bieb.
Clematis armandii                     | Franch.
Musa acuminata                        | Colla
Acer monspessulanum                   | L.
Acer palmatum                         | Thunb. ex Murray
Bambusa vulgaris                      | Schrad. ex J.C.Wendl.
Fittonia albivenis                    | (Lindl. ex Veitch) Brummitt
Prunus serrulata                      | Lindl.
Berberis aquifolium                   | Pursh
Lonicera japonica                     | Thunb. ex Murray
Astragalus monspessulanus             | L.
Hippeastrum reginae                   | (L.) Herb.
Tulipa sylvestris                     | L.
Bistorta officinalis                  | Delarbre
Dactylorhiza maculata                 | (L.) Soó
Orchis mascula                        | (L.) L.
Ophrys apifera                        | Huds.
Hibiscus rosa-sinensis                | L.
Capsella bursa-pastoris               | (L.) Medik.
Arctostaphylos uva-ursi               | (L.) Spreng.
Isoëtes lacustris                     | L.
Aloë ferox                            | Mill.
Minuartia rubella                     | (Wahlenb.) Hiern
Carex acuta                           | L., nom. cons.
Agaricus campestris                   | L. : Fr.
Cycas revoluta                        | Thunb. in Murray
Juncus effusus                        | L. emend. Buchenau
Dianthus deltoides                    | L. et al.
Crinum moorei                         | hort. ex Hook.f.
Rubus fruticosus                      | auct. non L.
Ophrys araneola                       | sensu auct.plur.
Phedimus aizoon                       | (L.) 't Hart
Phedimus spurius                      | (M.Bieb) 't Hart
Acacia seyal                          | Delile
Cytinus ruber                         | Fritsch
Sedum burrito                         | Moran
Lysimachia ephemerum                  | d'Urv.
Anthurium scherzerianum               | de Vriese & Schott
Nepenthes mirabilis                   | van der Berg ex DC.
Dianthus carthusianorum               | [L.] Hoffm.
Mentha × piperita                     | L.
Mentha x piperita                     | L.
Mentha X piperita                     | L.
Mentha ×piperita                      | L.
Hebe × franciscana                    | (Eastw.) Souster
Forsythia × intermedia                | Zabel
Begonia × tuberhybrida                | Voss
Fragaria × ananassa                   | (Weston) Duchesne ex Rozier
Platanus × hispanica                  | Mill. ex Münchh.
× Fatshedera lizei                    | (hort. ex Cochet) Guillaumin
×Cuprocyparis leylandii               | (A.B.Jacks. & Dallim.) Farjon
x Chitalpa tashkentensis              | T.S.Elias & Wisura
+ Laburnocytisus adamii               | (Poit.) C.K.Schneid.
Pinus nigra subsp. laricio            | (Poir.) Maire
Beta vulgaris ssp. maritima           | (L.) Arcang.
Beta vulgaris subsp maritima          | (L.) Arcang.
Brassica oleracea var. capitata       | L.
Fagus sylvatica f. purpurea           | (Aiton) C.K.Schneid.
Acer platanoides forma schwedleri     | (K.Koch) Schwer.
Poa alpina subsp. alpina var. vivipara | L.
Quercus subg. Cerris                  | Oerst.
Carex sect. Phacocystis               | Dumort.
Brassica oleracea convar. acephala    | (DC.) Alef.
Quercus                               | L.
Aeonium                               | Webb & Berthel.
Schlumbergera                         | Lem.
Hylotelephium                         | H.Ohba
Malvaceae                             | Juss.
Parus major                           | Linnaeus, 1758
Carduelis carduelis                   | (Linnaeus, 1758)
Bombus terrestris                     | (Linnaeus 1758)
Amanita muscaria                      | (L.) Lam.
"""

# the whole | the name | its author
WITHIN = """
Pinus nigra J.F.Arnold subsp. laricio Palib. ex Maire | Pinus nigra subsp. laricio | Palib. ex Maire
Dracaena reflexa Lam. var. angustifolia Baker | Dracaena reflexa var. angustifolia | Baker
Trifolium repens L. var. giganteum Lagr.-Foss. | Trifolium repens var. giganteum | Lagr.-Foss.
Salix babylonica L. f. rokkaku Kimura | Salix babylonica f. rokkaku | Kimura
Mentha × piperita L. nothosubsp. citrata (Ehrh.) Briq. | Mentha × piperita nothosubsp. citrata | (Ehrh.) Briq.
Rubus fruticosus L. agg. | Rubus fruticosus agg. | L.
Quercus robur L. 'Fastigiata' | Quercus robur 'Fastigiata' | L.
Hydrangea macrophylla (Thunb.) Ser. ‘Nikko Blue’ | Hydrangea macrophylla ‘Nikko Blue’ | (Thunb.) Ser.
Geranium macrorrhizum L. 'Bevan's Variety' | Geranium macrorrhizum 'Bevan's Variety' | L.
Acer palmatum Thunb. cv. Bloodgood | Acer palmatum cv. Bloodgood | Thunb.
Brassica oleracea L. Capitata Group | Brassica oleracea Capitata Group | L.
Pinus nigra J.F.Arnold subsp. nigra | Pinus nigra subsp. nigra | J.F.Arnold
"""

# nothing is to be taken off: a name without an author, or no scientific name
WHOLE = """
Quercus robur
Quercus
Malvaceae
Hibiscus rosa-sinensis
Mentha × piperita
× Fatshedera lizei
Pinus nigra subsp. laricio
Fagus sylvatica f. purpurea
Canis lupus familiaris
Quercus sp.
Quercus spp.
Quercus cf. robur
Rubus fruticosus agg.
Rosa 'Peace'
Quercus robur 'Fastigiata'
Acer palmatum cv. Bloodgood
Brassica oleracea (Capitata Group)
Salix alba × fragilis
Quercus robur × Quercus petraea
Quercus robur L. × Quercus petraea (Matt.) Liebl.
Alnus/glutinosa
LATIN CAPITAL LETTER A
QUERCUS ROBUR L.
quercus robur l.
oak
pink primrose
American crow
American Crow
Black footed Albatross
Black_footed_Albatross
Laysan_Albatross
Red winged Blackbird
Great Crested Flycatcher
Great blue Heron
Black & White Warbler
Chuck will Widow
Black and white Warbler
Black throated Blue Warbler
Mallard (Breeding male)
Rosa × L.
Rosa (
Golden retriever (puppy)
Golden retriever (Old)
Rose of Sharon
Rose de Resht
St. Bernard
Audi S4 Sedan 2012
Ram C/V Cargo Van Minivan 2012
Boeing 737-200
Tomato___Early_blight
Corn_(maize)___Common_rust
Speed limit (30km/h)
Vehicles over 3.5 metric tons prohibited
Hot and sour soup
species 01
U+0041
n01440764
(L.) Mill.
L.
'Peace'
×
Adiantum Capillus-veneris L.
"""


def rows(table):
    return [line for line in table.splitlines() if line]


@pytest.mark.parametrize("row", rows(SPLIT))
def test_a_name_and_its_author(row):
    name, author = (part.strip() for part in row.split("|"))
    assert split_author(f"{name} {author}") == (name, author)


@pytest.mark.parametrize("row", rows(WITHIN))
def test_an_author_within_a_name(row):
    text, name, author = (part.strip() for part in row.split("|"))
    assert split_author(text) == (name, author)


@pytest.mark.parametrize("name", rows(WHOLE))
def test_a_name_that_stays_whole(name):
    assert split_author(name) == (name, "")


def test_the_author_of_a_species_is_not_that_of_its_subspecies():
    assert split_author("Pinus nigra J.F.Arnold subsp. laricio") == ("Pinus nigra subsp. laricio", "")


def test_names_of_folders_have_underscores():
    assert split_author("Quercus_robur") == ("Quercus robur", "")
    assert split_author("Quercus_robur_L.") == ("Quercus robur", "L.")
    assert split_author("Picea_abies_(L.)_H.Karst.") == ("Picea abies", "(L.) H.Karst.")


def test_blanks_do_not_matter():
    assert split_author("  Quercus  robur\u00a0 L. ") == ("Quercus robur", "L.")


@given(st.text(alphabet="Aab éß×x .()&'_-/1", max_size=40))
def test_any_text_can_be_split_and_no_letter_is_lost(text):
    name, author = split_author(text)
    if author:
        assert name and name[0] != " "
    else:
        assert sorted(name.replace("_", " ").split()) == sorted(text.replace("_", " ").split())
