; The rules of ALFWorld's household, equal in meaning to those that the official games carry.
; Names, and the order of parameters, are theirs: commands and recorded plans refer to them.

(define (domain alfred)

(:requirements :adl :action-costs :typing)

(:types agent location receptacle object rtype otype)

(:predicates
    ; where things are
    (atLocation ?a - agent ?l - location)
    (receptacleAtLocation ?r - receptacle ?l - location)
    (objectAtLocation ?o - object ?l - location)
    (inReceptacle ?o - object ?r - receptacle)
    (wasInReceptacle ?o - object ?r - receptacle)
    (inReceptacleObject ?innerObject - object ?outerObject - object)
    ; what they are
    (receptacleType ?r - receptacle ?t - rtype)
    (objectType ?o - object ?t - otype)
    (canContain ?rt - rtype ?ot - otype)
    (isReceptacleObject ?o - object)
    (isReceptacleObjectFull ?o - object)
    (openable ?r - receptacle)
    (cleanable ?o - object)
    (heatable ?o - object)
    (coolable ?o - object)
    (pickupable ?o - object)
    (moveable ?o - object)
    (toggleable ?o - object)
    (sliceable ?o - object)
    ; what has been done to them
    (opened ?r - receptacle)
    (full ?r - receptacle)
    (isClean ?o - object)
    (isHot ?o - object)
    (isCool ?o - object)
    (isOn ?o - object)
    (isToggled ?o - object)
    (isSliced ?o - object)
    ; the agent
    (holds ?a - agent ?o - object)
    (holdsAny ?a - agent)
    (holdsAnyReceptacleObject ?a - agent)
    (checked ?r - receptacle)
    (examined ?l - location)
)

(:functions (distance ?from ?to) (total-cost) - number)

; Looking. These actions change nothing that a precondition asks for.

(:action look
    :parameters (?a - agent ?l - location)
    :precondition (atLocation ?a ?l)
    :effect (checked ?l))

(:action inventory
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a))

(:action examineReceptacle
    :parameters (?a - agent ?r - receptacle)
    :precondition (exists (?l - location) (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l)))
    :effect (checked ?r))

; Only what is held can be examined.
(:action examineObject
    :parameters (?a - agent ?o - object)
    :precondition (holds ?a ?o)
    :effect (checked ?o))

; Moving about.

(:action GotoLocation
    :parameters (?a - agent ?lStart - location ?lEnd - location ?r - receptacle)
    :precondition (and (atLocation ?a ?lStart) (receptacleAtLocation ?r ?lEnd))
    :effect (and (not (atLocation ?a ?lStart)) (atLocation ?a ?lEnd) (increase (total-cost) 1)))

; Doors and drawers.

(:action OpenObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (openable ?r) (not (opened ?r)))
    :effect (and (opened ?r) (checked ?r) (increase (total-cost) 1)))

(:action CloseObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (openable ?r) (opened ?r))
    :effect (and (not (opened ?r)) (increase (total-cost) 1)))

; One hand. An object may be in several receptacles; taking it removes it from one of them.

(:action PickupObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and
        (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (inReceptacle ?o ?r)
        (or (opened ?r) (not (openable ?r)))
        (pickupable ?o) (not (holdsAny ?a)))
    :effect (and
        (not (inReceptacle ?o ?r)) (not (objectAtLocation ?o ?l))
        (holds ?a ?o) (holdsAny ?a)
        (increase (total-cost) 1)))

(:action PutObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype)
    :precondition (and
        (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (holds ?a ?o)
        (or (opened ?r) (not (openable ?r)))
        (objectType ?o ?ot) (receptacleType ?r ?rt) (canContain ?rt ?ot))
    :effect (and
        (inReceptacle ?o ?r) (objectAtLocation ?o ?l)
        (not (holds ?a ?o)) (not (holdsAny ?a))
        (increase (total-cost) 1)))

; Treating what is held. Nothing has to be opened or put down for it.

(:action CleanObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
        (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (holds ?a ?o) (cleanable ?o)
        (or (receptacleType ?r SinkType) (receptacleType ?r SinkBasinType)))
    :effect (and (isClean ?o) (increase (total-cost) 5)))

(:action HeatObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
        (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (holds ?a ?o) (heatable ?o)
        (receptacleType ?r MicrowaveType))
    :effect (and (isHot ?o) (not (isCool ?o)) (increase (total-cost) 5)))

(:action CoolObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
        (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (holds ?a ?o) (coolable ?o)
        (receptacleType ?r FridgeType))
    :effect (and (isCool ?o) (not (isHot ?o)) (increase (total-cost) 5)))

; Lamps, through closed doors too; and knives.

(:action ToggleObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and
        (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (inReceptacle ?o ?r) (toggleable ?o))
    :effect (and
        (isToggled ?o)
        (when (isOn ?o) (not (isOn ?o)))
        (when (not (isOn ?o)) (isOn ?o))
        (increase (total-cost) 5)))

(:action SliceObject
    :parameters (?a - agent ?l - location ?co - object ?ko - object)
    :precondition (and
        (atLocation ?a ?l) (objectAtLocation ?co ?l) (sliceable ?co) (holds ?a ?ko)
        (or (objectType ?ko KnifeType) (objectType ?ko ButterKnifeType)))
    :effect (and (isSliced ?co) (increase (total-cost) 5)))

; Last, because the games of an older edition end before it.
(:action help
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a))
)
